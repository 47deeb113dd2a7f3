"""HTML and Markdown made from evidence."""
