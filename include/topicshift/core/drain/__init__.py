"""The drain: evidence a group and partition, the verdict, its reasons, progress and the gate."""
