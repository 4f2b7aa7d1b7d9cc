# SPDX-License-Identifier: MIT
# What `cmake --install` puts where: headers, both libraries, the program, and the files by which pkg-config and CMake
# find them. All paths are relative, so that an installed tree may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY include/ashlar DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(TARGETS ashlar_static ashlar_shared EXPORT ashlar
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ashlar)
  install(TARGETS ashlar RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ashlar)
install(EXPORT ashlar NAMESPACE ashlar:: DESTINATION ${package} FILE ashlar-targets.cmake)
configure_package_config_file(cmake/ashlar-config.cmake.in ashlar-config.cmake INSTALL_DESTINATION ${package}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(ashlar-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ashlar-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/ashlar-config-version.cmake
        DESTINATION ${package})

file(RELATIVE_PATH ASHLAR_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ASHLAR_PC_PREFIX "${ASHLAR_PC_PREFIX}")
string(REPLACE ";" " " ASHLAR_PC_PRIVATE "-Wl,--exclude-libs,${ASHLAR_ARCHIVES};${ASHLAR_LLVM_LIBS};-lpthread;-lm;-lstdc++")
configure_file(cmake/ashlar.pc.in ashlar.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ashlar.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
