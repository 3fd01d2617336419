# How everything is compiled. What decides numbers is here and applies to every build: no contraction of a*b+c, no
# fast-math, so that every compiler and every build type gives the same bits.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # POSIX and GNU calls of the C library
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${TANDEM_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wshadow -Wpointer-arith -Wvla $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
# Not with sanitizers: what they insert leads GCC's flow analysis to warnings about code that cannot be reached.
if(TANDEM_WERROR AND NOT TANDEM_SANITIZE)
  add_compile_options(-Werror)
endif()
add_compile_options(-ffp-contract=off -fno-math-errno -D_GNU_SOURCE)
include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)

if(TANDEM_SANITIZE)
  # Half the time to compile of -O2 -g, and the stack of a report keeps its lines.
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  if(TANDEM_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
    if(TANDEM_SANITIZE MATCHES address) # which finds what these two find, for a fifth of the time to compile
      add_compile_options(-fno-sanitize=null,object-size)
    endif()
  endif()
endif()
if(TANDEM_LIBFUZZER)
  add_compile_options(-fsanitize=fuzzer-no-link) # what libFuzzer needs to see which code an input reached
endif()
if(TANDEM_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
