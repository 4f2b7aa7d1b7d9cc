# SPDX-License-Identifier: MIT
# Writes OUT, a header that defines ASH_CODE_VERSION as a hash of FILES: the kernel cache must not outlive a change of what
# the emitter makes.
set(all "")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 32 hash)
file(WRITE ${OUT} "/* generated from the sources of the code generator */\n#define ASH_CODE_VERSION \"${hash}\"\n")
