# GNU make reads GNUmakefile and never this file; every other make reads this one, which only says so.
all help setup screenshots demo up down status test check lint types imports unit thorough simulation simulate integration chaos e2e bench docs lock clean:
	@echo "make: this project needs GNU make 3.82 or newer. Install it (FreeBSD: pkg install gmake; Debian: apt install make) and run it, often as gmake." >&2; exit 2
.DEFAULT:
	@echo "make: this project needs GNU make 3.82 or newer. Install it and run it, often as gmake." >&2; exit 2
