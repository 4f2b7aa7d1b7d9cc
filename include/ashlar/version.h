/* SPDX-License-Identifier: MIT */
/* Which ashlar this is: of the headers when a program is compiled, and of the library when it runs.
 * Versions are MAJOR.MINOR.PATCH; while MAJOR is 0, another MINOR may change the interface. The build takes
 * its version from here. */
#ifndef ASHLAR_VERSION_H
#define ASHLAR_VERSION_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ASH_VERSION_MAJOR 0
#define ASH_VERSION_MINOR 1
#define ASH_VERSION_PATCH 0

#define ASH_VERSION_QUOTE_(major, minor, patch) #major "." #minor "." #patch
#define ASH_VERSION_QUOTE(major, minor, patch)  ASH_VERSION_QUOTE_(major, minor, patch)

/* "0.1.0" */
#define ASH_VERSION ASH_VERSION_QUOTE(ASH_VERSION_MAJOR, ASH_VERSION_MINOR, ASH_VERSION_PATCH)

/* For comparing: ASH_VERSION_NUMBER >= ASH_VERSION_OF(0, 2, 0). */
#define ASH_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))

#define ASH_VERSION_NUMBER ASH_VERSION_OF(ASH_VERSION_MAJOR, ASH_VERSION_MINOR, ASH_VERSION_PATCH)

/* The ASH_VERSION that the library was built with; a constant. */
ASH_API const char *ash_version(void);

#ifdef __cplusplus
}
#endif
#endif
