"""What Kubernetes says of an application, and what is to be written there. Pure: objects of its API in and out."""
