"""Controllers: stop, point, start and observe participants of one kind."""
