"""Mullapudi, Vasista and Bondhugula (2015): PolyMage, image pipelines fused in overlapping tiles by a model."""
