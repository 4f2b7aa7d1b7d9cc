Bqlinearsoftmax_24J=5"
3'+8z/