B
roialign_4JL&¹½Õ/w=”=