"""Every theta, n and k at once, from counts alone."""
