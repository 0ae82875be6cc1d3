"""Real servers for tests, benchmarks and crash runs: PostgreSQL and Apache Kafka, on free ports of this machine.

    with Postgres() as postgres, Kafka() as kafka:
        postgres.database("orders"); kafka.servers; kafka.kill9(); kafka.restart()

What is missing is installed: PostgreSQL from Debian's packages, Kafka's jars from Maven Central into the user's cache.
Each server runs in a process group of its own and ends with this process, however that ends.
"""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
PORTS = (10_000, 32_768)
"""Below the range from which Linux takes ports for outgoing connections."""
KAFKA_VERSION = "4.4.0"
# The pipe of its input closes when this process ends, also when it is killed: then the guard kills the group. The
# children of PostgreSQL have groups of their own and end after their parent, unless they are paused.
_GUARD = "(read _ <&3; kill -CONT $(cat /proc/$$/task/$$/children); kill -9 0) &"
GUARDED = ["sh", "-c", f'exec 3<&0; {_GUARD} exec "$@" 3<&- </dev/null', "guarded"]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartermaster"


class Server(AbstractContextManager["Server"]):
    """One server: a port and a folder that it keeps over restarts. `command` is run in `folder`, as `user` if given."""

    def __init__(self, command: Sequence[str], port: int, folder: Path, user: str | None = None) -> None:
        self.port = port
        self.folder = folder
        self._command = command
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start and wait until it accepts connections. Raises RuntimeError with the end of its output."""
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [*GUARDED, *self._command],
                cwd=self.folder,
                user=self._user,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(self._answers, START_SECONDS, self._output)
        return self

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill9()

    def runs(self) -> bool:
        """Tell whether it was started and neither stopped nor killed."""
        return self._process is not None

    def kill9(self) -> None:
        """Kill it and its children, as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            _signal(process.pid, signal.SIGKILL)
            process.communicate(timeout=STOP_SECONDS)

    def restart(self) -> Self:
        """Start it again where it was, after `stop` or `kill9`."""
        self.kill9()
        return self.start()

    def let_go(self) -> None:
        """Ask it to take nobody new, and to end when the last one who is connected has gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Stop its clock: connections stay open, nothing answers."""
        if self._process is not None:
            _signal(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            _signal(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{self._command[0]} ended at once: {self._output()}")
        return accepts(self.port)

    def _output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-2000:]


def _signal(server: int, number: signal.Signals) -> None:
    """Send a signal to a server and to its children, but not to its guard, which shares its group."""
    with suppress(FileNotFoundError, ProcessLookupError):
        children = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
        for pid in [server, *(pid for pid in children if os.getpgid(pid) != server)]:
            os.kill(pid, number)


class Postgres(Server):
    """PostgreSQL. `durable=False` leaves out the syncs of the disk: a kill of the process still loses nothing."""

    def __init__(self, *, durable: bool = False) -> None:
        self._bin = postgres_binaries()
        user = unprivileged_user()
        folder = Path(tempfile.mkdtemp(prefix="qm-postgres-"))
        if user:
            shutil.chown(folder, user, user_group(user))
        data, port = folder / "data", free_port()
        run(
            [self._bin / "initdb", "-D", data, "-U", "quartermaster", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
            user,
        )
        options = {"port": port, "listen_addresses": HOST, "unix_socket_directories": "", "max_connections": 200}
        if not durable:
            options |= {"fsync": "off", "full_page_writes": "off"}
        flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
        super().__init__([str(self._bin / "postgres"), "-D", str(data), *flags], port, folder, user)

    @property
    def url(self) -> str:
        """The URL of the server without a database, for SQLAlchemy."""
        return f"postgresql+asyncpg://quartermaster@{HOST}:{self.port}"

    def database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        run([self._bin / "createdb", "-h", HOST, "-p", str(self.port), "-U", "quartermaster", name])
        return f"{self.url}/{name}"

    def drop(self, name: str) -> None:
        """Lose a database, whoever is connected."""
        run([self._bin / "dropdb", "--force", "-h", HOST, "-p", str(self.port), "-U", "quartermaster", name])

    def _answers(self) -> bool:
        ready = [str(self._bin / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return super()._answers() and subprocess.run(ready, check=False).returncode == 0


class Kafka(Server):
    """An Apache Kafka broker, KRaft, one node. `servers` is what a client connects to."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="qm-kafka-"))
        port, controller = free_port(), free_port()
        settings = folder / "server.properties"
        settings.write_text("\n".join(f"{name}={value}" for name, value in kafka_settings(folder, port, controller)))
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*"]
        identity = ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "--standalone", "-c", str(settings)]
        run([*java, "kafka.tools.StorageTool", "format", *identity])
        super().__init__([*java, "kafka.Kafka", str(settings)], port, folder)
        self.servers = f"{HOST}:{port}"


def kafka_settings(folder: Path, port: int, controller: int) -> list[tuple[str, object]]:
    """Return the properties of a lone broker that starts fast and makes no topic by itself."""
    return [
        ("process.roles", "broker,controller"),
        ("node.id", 1),
        ("listeners", f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}"),
        ("advertised.listeners", f"PLAINTEXT://{HOST}:{port}"),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.bootstrap.servers", f"{HOST}:{controller}"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ("log.dirs", folder / "data"),
        ("auto.create.topics.enable", "false"),
        ("log.cleaner.enable", "false"),
        ("offsets.topic.num.partitions", 1),
        ("offsets.topic.replication.factor", 1),
        ("transaction.state.log.num.partitions", 1),
        ("transaction.state.log.replication.factor", 1),
        ("transaction.state.log.min.isr", 1),
        ("group.initial.rebalance.delay.ms", 0),
        # A killed broker may come back only when its old session is over.
        ("broker.session.timeout.ms", 1000),
        ("broker.heartbeat.interval.ms", 200),
    ]


def kafka_jars() -> Path:
    """Return the folder with Kafka's jars; fetched once, with Maven."""
    jars = CACHE / f"kafka-{KAFKA_VERSION}"
    if not jars.exists():
        if not (shutil.which("mvn") and shutil.which("java")):
            install("default-jre-headless", "maven")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            pom = Path(folder) / "pom.xml"
            pom.write_text(_POM)
            run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"])
            with suppress(FileExistsError):  # another process was faster
                (Path(folder) / "jars").rename(jars)
    return jars


_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>quartermaster</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
  </dependency></dependencies>
</project>
"""


def postgres_binaries() -> Path:
    """Return the folder with `initdb` and `postgres`, the newest; installed when there is none."""

    def found() -> list[Path]:
        return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))

    if not found():
        # Debian would create a cluster and start it: tests bring their own.
        settings = Path("/etc/postgresql-common/createcluster.conf")
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("create_main_cluster = false\n")
        install("postgresql")
    return found()[-1].parent


def install(*packages: str) -> None:
    """Install Debian packages. Raises RuntimeError where this process may not."""
    if os.geteuid() != 0:
        raise RuntimeError(f"these packages are needed, ask the administrator: apt-get install {' '.join(packages)}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run(["apt-get", "-qq", "update"])
    run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", *packages])


def unprivileged_user() -> str | None:
    """Return who PostgreSQL shall run as: it refuses root. None = whoever runs this."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def user_group(user: str) -> int:
    """Return the number of the main group of a user."""
    return pwd.getpwnam(user).pw_gid


def run(command: Sequence[str | Path], user: str | None = None) -> None:
    """Run a command to its end. Raises RuntimeError with its output."""
    done = subprocess.run(command, user=user, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout.decode(errors='replace')[-2000:]}")


def free_port() -> int:
    """Return a port that nobody listens on now.

    It is none of those that the system gives to outgoing connections: who calls a server that is down could be given
    the very port that he calls, and the server could not come back.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, random.randrange(*PORTS)))
            return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    """Return whether something listens there."""
    try:
        with socket.create_connection((HOST, port), 1.0):
            return True
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], limit_seconds: float, tell: Callable[[], str] = lambda: "") -> None:
    """Wait for a condition. Raises RuntimeError after `limit_seconds`, with what `tell` says."""
    until = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(f"not within {limit_seconds} s: {tell()}")
        time.sleep(0.01)
