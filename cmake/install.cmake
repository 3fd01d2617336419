# What `cmake --install` puts where: headers, both libraries, the program, a pkg-config file and a CMake package.
# tandem::tandem is the shared library, which needs nothing else; find_package(tandem COMPONENTS static) adds
# tandem::static, whose user links the libraries of libraries.cmake too.
include(CMakePackageConfigHelpers)
set(TANDEM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)

install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS tandem_shared EXPORT tandemTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tandem_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tandem)
  install(TARGETS tandem RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT tandemTargets NAMESPACE tandem:: DESTINATION ${TANDEM_PACKAGE_DIR})

configure_package_config_file(cmake/tandemConfig.cmake.in tandemConfig.cmake INSTALL_DESTINATION ${TANDEM_PACKAGE_DIR}
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tandemConfig.cmake ${CMAKE_BINARY_DIR}/tandemConfigVersion.cmake
        DESTINATION ${TANDEM_PACKAGE_DIR})

if(TANDEM_HAVE_ONEDNN)
  set(TANDEM_PRIVATE_LIBRARIES "-ldnnl")
endif()
if(TANDEM_HAVE_MPI)
  string(JOIN " " TANDEM_MPI_LIBRARIES ${MPI_C_LIBRARIES})
  string(APPEND TANDEM_PRIVATE_LIBRARIES " ${TANDEM_MPI_LIBRARIES}")
endif()
# Relative to the file itself: `cmake --install --prefix` may put everything elsewhere than configured.
file(RELATIVE_PATH TANDEM_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tandem.pc.in tandem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
