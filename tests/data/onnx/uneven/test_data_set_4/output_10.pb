BcountedJ²ò½+YÅ<
’<