"""What pages show of migrations: plain values from the journal's rows and from evidence. No page asks a cluster."""
