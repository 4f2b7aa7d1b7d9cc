B
maxpool_89J=ƒ=)K> ’ô¾ðhl?ðhl?N ¾