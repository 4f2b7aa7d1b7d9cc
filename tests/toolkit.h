/* SPDX-License-Identifier: MIT */
/* Programs of the CUDA toolkit, where they are installed. */
#ifndef ASH_TOOLKIT_H
#define ASH_TOOLKIT_H

#include "testing.h"

/* A program of the toolkit, where it is: what the variable says, or on the PATH, or where the toolkit is by
 * itself. NULL: nowhere. */
static inline const char *find_tool(const char *variable, const char *name, char path[256]) {
    char command[1024];
    const char *said = getenv(variable);
    snprintf(command, sizeof command, "PATH=\"$PATH:/usr/local/cuda/bin\" command -v '%.400s' 2>/dev/null",
             said && *said ? said : name);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    bool found = fgets(path, 256, out) != NULL;
    pclose(out);
    path[strcspn(path, "\n")] = 0;
    return found && path[0] ? path : NULL;
}

/* Ends a test that needs one of them, and says so. */
#define NEED_TOOL(tool, name)                                                                              \
    do {                                                                                                   \
        if (tool()) break;                                                                                 \
        print_message("SKIP: no %s, neither by $%s, nor on the PATH, nor in /usr/local/cuda/bin\n", #tool, \
                      name);                                                                               \
        skip();                                                                                            \
    } while (0)

#endif
