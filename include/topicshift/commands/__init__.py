"""The subcommands of ``topicshift``: one module each, which exports a click command or group named ``command``."""
