B
roialign_8JnqÔ>3Æ?Õ?