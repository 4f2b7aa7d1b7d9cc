Blinearattentiongate_13_0J,~¾¾˜rÇ¾cì„¾§>õ<
>¬‹?