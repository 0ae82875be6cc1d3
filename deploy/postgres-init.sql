-- One database a service; a service connects to its own alone.
CREATE DATABASE catalog;
CREATE DATABASE admission;
CREATE DATABASE scheduler;
CREATE DATABASE provisioner;
CREATE DATABASE metering;
