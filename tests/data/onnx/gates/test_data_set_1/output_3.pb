Blinearattentiongate_12_0J,~¾¾˜rÇ¾cì„¾§>õ<
>¬‹?