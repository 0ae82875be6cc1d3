"""The whole product in one process: five services, one log, one HTTP origin, simulated clouds and a local issuer."""
