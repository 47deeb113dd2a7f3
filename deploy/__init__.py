"""Entry points of the image and of docker-compose.yml."""
