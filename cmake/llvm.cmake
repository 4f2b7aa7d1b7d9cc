# SPDX-License-Identifier: MIT
# Finds LLVM 19 through its llvm-config: sets ASHLAR_LLVM_INCLUDE, ASHLAR_LLVM_LIBS,
# ASHLAR_LLVM_SHARED (the same as a shared library) and ASHLAR_ARCHIVES. LLVM's own CMake package is not used, because
# Debian's names optional parts (Polly) that llvm-19-dev does not install.
find_program(LLVM_CONFIG NAMES llvm-config-19 /usr/lib/llvm-19/bin/llvm-config REQUIRED)

function(llvm_config out)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" " " text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

llvm_config(ASHLAR_LLVM_INCLUDE --includedir)
llvm_config(libdir --libdir)
llvm_config(targets --targets-built)
string(FIND " ${targets} " " NVPTX " ASHLAR_NVPTX) # -1: this LLVM has no code generator for GPUs
if(ASHLAR_NVPTX EQUAL -1)
  set(gpu "")
else()
  set(gpu nvptx)
  set_source_files_properties(src/code/nvptx/nvptx.c PROPERTIES COMPILE_DEFINITIONS ASHLAR_NVPTX)
endif()
if(ASHLAR_TESTS OR NOT ASHLAR_LLVM STREQUAL "static")
  llvm_config(shared --link-shared --libs)
  separate_arguments(shared)
  set(ASHLAR_LLVM_SHARED -L${libdir} ${shared})
endif()
if(ASHLAR_LLVM STREQUAL "static")
  llvm_config(libs --link-static --libs native ${gpu} passes)
  llvm_config(system --link-static --system-libs)
  # Named for parts that nothing here links: a solver for the static analyser, and manifests of Windows programs.
  string(REGEX REPLACE "[^ ]*(libz3|libxml2|-lz3|-lxml2)[^ ]*" "" system "${system}")
else()
  set(libs ${shared})
  set(system "")
endif()
separate_arguments(libs)
separate_arguments(system)

# A linked LLVM is started with whatever holds it: less of the file is touched, and so resident, with short relocations and
# what runs then side by side. Where the linker cannot, all works the same.
set(ASHLAR_LINK_OPTIONS "")
if(ASHLAR_LLVM STREQUAL "static")
  include(CheckLinkerFlag)
  foreach(flag -z,pack-relative-relocs -T,${CMAKE_CURRENT_LIST_DIR}/startup.ld)
    string(MAKE_C_IDENTIFIER "ASHLAR_LINKER_HAS_${flag}" has)
    check_linker_flag(C "LINKER:${flag}" ${has})
    if(${has})
      list(APPEND ASHLAR_LINK_OPTIONS LINKER:${flag})
    endif()
  endforeach()
endif()
set(ASHLAR_LLVM_LIBS -L${libdir} ${libs} ${system})

# libashlar.a and the archives it needs, as --exclude-libs wants them. What is linked with libashlar.a holds an LLVM of its
# own; a shared object that showed that one's symbols would have them replaced by those of another LLVM in the process: in
# a plug-in, that ends the host.
set(ASHLAR_ARCHIVES ${libs})
list(FILTER ASHLAR_ARCHIVES INCLUDE REGEX "^-l")
list(TRANSFORM ASHLAR_ARCHIVES REPLACE "^-l(.*)$" "lib\\1.a")
list(PREPEND ASHLAR_ARCHIVES libashlar.a)
string(REPLACE ";" ":" ASHLAR_ARCHIVES "${ASHLAR_ARCHIVES}")
