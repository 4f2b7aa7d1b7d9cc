# Finds LLVM 19 through its llvm-config: sets ASHLAR_LLVM_INCLUDE and ASHLAR_LLVM_LIBS. LLVM's own CMake package is not
# used, because Debian's names optional parts (Polly) that llvm-19-dev does not install.
find_program(LLVM_CONFIG NAMES llvm-config-19 /usr/lib/llvm-19/bin/llvm-config REQUIRED)

function(llvm_config out)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" " " text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

llvm_config(ASHLAR_LLVM_INCLUDE --includedir)
llvm_config(libdir --libdir)
if(ASHLAR_LLVM STREQUAL "static")
  llvm_config(libs --link-static --libs native nvptx passes orcjit)
  llvm_config(system --link-static --system-libs)
  # Named for parts that nothing here links: a solver for the static analyser, and manifests of Windows programs.
  string(REGEX REPLACE "[^ ]*(libz3|libxml2|-lz3|-lxml2)[^ ]*" "" system "${system}")
else()
  llvm_config(libs --link-shared --libs)
  set(system "")
endif()
separate_arguments(libs)
separate_arguments(system)
set(ASHLAR_LLVM_LIBS -L${libdir} ${libs} ${system})
