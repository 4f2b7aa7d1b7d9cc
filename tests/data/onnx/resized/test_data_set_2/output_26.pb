B
maxpool_91J=ƒ=)K>ðhl?ãV£>