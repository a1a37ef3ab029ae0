"""Tools around Bireme: a real control plane, images, the demo, generated pages."""
