"""Maps of answers: a release and a file of shapes become a choropleth, values and how sure they are side by side."""

from consilience.publication.maps.choropleths import Map, map  # noqa: A004
from consilience.publication.maps.shapes import Shapes, read_shapes

__all__ = ["Map", "Shapes", "map", "read_shapes"]
