"""What reaches outside. Only `app` builds these."""
