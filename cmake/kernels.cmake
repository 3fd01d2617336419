# One source per kernel, one object per instruction set: every backends/cpu/kernels/*.c is compiled once for each entry of
# TANDEM_ISAS, with TD_ISA set to its name; the cpu backend picks one set at start.
file(GLOB TANDEM_KERNELS CONFIGURE_DEPENDS backends/cpu/kernels/*.c)
list(FILTER TANDEM_KERNELS EXCLUDE REGEX "/_template|_pairs\\.c$|_amx\\.c$")
set(TANDEM_ISAS baseline)
set(TANDEM_ISA_FLAGS_baseline "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND TANDEM_ISAS avx2 avx512)
  set(TANDEM_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(TANDEM_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
endif()

set(TANDEM_KERNEL_LEVEL -O3)
if(TANDEM_SANITIZE)
  set(TANDEM_KERNEL_LEVEL "") # compile.cmake says which
  # Sanitized builds run where they are built: what this processor cannot run is compiled, and no more than that.
  # GCC aligns vectors of 64 bytes to 32 where it looks for uses of a stack after return (PR 110027); the other sets' kernels, of
  # the same sources, are looked at.
  if(TANDEM_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL GNU)
    list(APPEND TANDEM_ISA_FLAGS_avx512 --param=asan-use-after-return=0)
  endif()
  if("avx512" IN_LIST TANDEM_ISAS AND EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo wide REGEX "^flags.* avx512bw" LIMIT_COUNT 1)
    if(wide STREQUAL "")
      list(APPEND TANDEM_ISA_FLAGS_avx512 -fno-sanitize=all -O0 -g0)
    endif()
  endif()
endif()
set(TANDEM_KERNEL_OBJECTS "")
if(TANDEM_KERNELS)
  foreach(isa ${TANDEM_ISAS})
    add_library(tandem_kernels_${isa} OBJECT ${TANDEM_KERNELS})
    target_link_libraries(tandem_kernels_${isa} PRIVATE tandem_libraries)
    target_compile_options(tandem_kernels_${isa} PRIVATE ${TANDEM_KERNEL_LEVEL} -fno-trapping-math ${TANDEM_ISA_FLAGS_${isa}})
    target_compile_definitions(tandem_kernels_${isa} PRIVATE TD_ISA=${isa} TD_ISA_${isa}=1)
    list(APPEND TANDEM_KERNEL_OBJECTS $<TARGET_OBJECTS:tandem_kernels_${isa}>)
  endforeach()
endif()

# What there is besides for processors that multiply bf16 in pairs, kernels/pairs.h: the products once more, and *_pairs.c.
file(GLOB TANDEM_PAIR_KERNELS CONFIGURE_DEPENDS backends/cpu/kernels/*_pairs.c)
list(APPEND TANDEM_PAIR_KERNELS ${CMAKE_SOURCE_DIR}/backends/cpu/kernels/gemm.c)
if("avx512" IN_LIST TANDEM_ISAS)
  add_library(tandem_kernels_avx512_bf16 OBJECT ${TANDEM_PAIR_KERNELS})
  target_link_libraries(tandem_kernels_avx512_bf16 PRIVATE tandem_libraries)
  target_compile_options(tandem_kernels_avx512_bf16 PRIVATE ${TANDEM_KERNEL_LEVEL} -fno-trapping-math ${TANDEM_ISA_FLAGS_avx512}
                                                            -mavx512bf16)
  target_compile_definitions(tandem_kernels_avx512_bf16 PRIVATE TD_ISA=avx512_bf16 TD_ISA_avx512=1 TD_ISA_avx512_bf16=1
                                                                TD_PAIRS=1)
  list(APPEND TANDEM_KERNEL_OBJECTS $<TARGET_OBJECTS:tandem_kernels_avx512_bf16>)
endif()

# And in tiles, kernels/amx.h: *_amx.c, and *_pairs.c once more. AMX needs no flag: its instructions stand in the source as such.
file(GLOB TANDEM_AMX_KERNELS CONFIGURE_DEPENDS backends/cpu/kernels/*_amx.c backends/cpu/kernels/*_pairs.c)
if("avx512" IN_LIST TANDEM_ISAS)
  add_library(tandem_kernels_amx_bf16 OBJECT ${TANDEM_AMX_KERNELS})
  target_link_libraries(tandem_kernels_amx_bf16 PRIVATE tandem_libraries)
  target_compile_options(tandem_kernels_amx_bf16 PRIVATE ${TANDEM_KERNEL_LEVEL} -fno-trapping-math ${TANDEM_ISA_FLAGS_avx512}
                                                         -mavx512bf16)
  target_compile_definitions(tandem_kernels_amx_bf16 PRIVATE TD_ISA=amx_bf16 TD_ISA_avx512=1 TD_ISA_amx_bf16=1 TD_PAIRS=1
                                                             TD_AMX=1)
  list(APPEND TANDEM_KERNEL_OBJECTS $<TARGET_OBJECTS:tandem_kernels_amx_bf16>)
endif()
