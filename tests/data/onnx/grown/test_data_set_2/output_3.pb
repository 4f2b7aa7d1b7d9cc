Bmask_outJN¥
¿²8¾