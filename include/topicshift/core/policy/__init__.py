"""The installation policy: what no spec, form or command line of this installation may go below."""
