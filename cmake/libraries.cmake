# The libraries that Tandem stands on, as one target. All are required but oneDNN: without it the cpu backend multiplies
# matrices with the reference GEMM, which gives the same bits on every device but is slow.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(TANDEM_PACKAGES REQUIRED IMPORTED_TARGET hwloc yaml-0.1 jansson zlib libxxhash)

# Not find_package(dnnl): distributions' package files insist on the OpenCL headers, which nothing here includes.
find_path(TANDEM_ONEDNN_INCLUDE oneapi/dnnl/dnnl.h)
find_library(TANDEM_ONEDNN_LIBRARY dnnl)

add_library(tandem_libraries INTERFACE)
target_link_libraries(tandem_libraries INTERFACE PkgConfig::TANDEM_PACKAGES Threads::Threads m ${CMAKE_DL_LIBS})
if(TANDEM_ONEDNN_INCLUDE AND TANDEM_ONEDNN_LIBRARY)
  set(TANDEM_HAVE_ONEDNN ON)
  target_link_libraries(tandem_libraries INTERFACE ${TANDEM_ONEDNN_LIBRARY})
  target_include_directories(tandem_libraries SYSTEM INTERFACE ${TANDEM_ONEDNN_INCLUDE})
  target_compile_definitions(tandem_libraries INTERFACE TANDEM_HAVE_ONEDNN=1)
else()
  set(TANDEM_HAVE_ONEDNN OFF)
  message(WARNING "oneDNN was not found: the cpu backend will use the reference GEMM, which is many times slower.\n"
                  "  To have it: tools/install-packages, or the package libdnnl-dev")
endif()

# Distributed jobs (ps/). Without it everything on one host works, and a rank under mpirun is told what is missing.
find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
  set(TANDEM_HAVE_MPI ON)
  target_link_libraries(tandem_libraries INTERFACE ${MPI_C_LIBRARIES})
  target_include_directories(tandem_libraries SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
  target_compile_definitions(tandem_libraries INTERFACE TANDEM_HAVE_MPI=1)
else()
  set(TANDEM_HAVE_MPI OFF)
  message(WARNING "MPI was not found: tandem will train on one host only.\n"
                  "  To have it: tools/install-packages, or the packages libopenmpi-dev and openmpi-bin")
endif()

# The page of training runs (tandem board). The program alone links it, not the library.
pkg_check_modules(TANDEM_MICROHTTPD IMPORTED_TARGET libmicrohttpd)
if(NOT TANDEM_MICROHTTPD_FOUND)
  message(WARNING "libmicrohttpd was not found: tandem board will be off.\n"
                  "  To have it: tools/install-packages, or the package libmicrohttpd-dev")
endif()
