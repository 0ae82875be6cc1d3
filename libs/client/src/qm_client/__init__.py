"""The Python SDK (`qm_client.sdk`) and the `qm` command. The embedded product is the extra `embedded`."""
