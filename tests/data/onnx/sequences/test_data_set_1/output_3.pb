
sequencemap_2_0J╙F©рс@<DШ╫═x@