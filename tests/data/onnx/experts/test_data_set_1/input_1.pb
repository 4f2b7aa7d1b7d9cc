BscoresJµ	x>É	Î?†p.>Â“¿fn
@