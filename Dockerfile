# One recipe for all five services: docker build --build-arg SERVICE=catalog .
FROM python:3.13-slim AS build
ARG SERVICE
RUN pip install --no-cache-dir uv
WORKDIR /src
COPY . .
RUN UV_PROJECT_ENVIRONMENT=/opt/qm uv sync --frozen --no-dev --no-editable --package qm-${SERVICE}

FROM python:3.13-slim
ARG SERVICE
ENV PATH=/opt/qm/bin:$PATH QM_HOST=0.0.0.0 QM_PORT=8080 SERVICE=${SERVICE}
RUN useradd --system --uid 10001 quartermaster && install -d -o quartermaster /var/lib/quartermaster
COPY --from=build /opt/qm /opt/qm
USER quartermaster
EXPOSE 8080
CMD exec qm-${SERVICE} serve
