BsumJ
'7A