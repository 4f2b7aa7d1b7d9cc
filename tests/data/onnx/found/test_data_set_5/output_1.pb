B
gathernd_4JŞø	?