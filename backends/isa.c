/* The choice of the instruction set: see isa.h. */
#include "backends/isa.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TD_ISA_HAS_X86 1
#else
#define TD_ISA_HAS_X86 0
#endif

static const char *const names[TD_ISA_COUNT] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16"};

const char *td_isa_name(td_isa isa)
{
    return names[isa];
}

#if TD_ISA_HAS_X86
/* Half-float conversions; clang's __builtin_cpu_supports does not know them by name. That the system saves the wide
 * registers they use, "avx2" says. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* AVX512_BF16: leaf 7, the second of its parts, if it has two. The registers are those of "avx512f". */
static bool has_bf16(void)
{
    unsigned parts, a, b, c, d;
    return __get_cpuid_count(7, 0, &parts, &b, &c, &d) && parts >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a >> 5 & 1);
}

/* Intel's VDPBF16PS does no more products in a cycle than its fma of f32, or half as many: it is used where it is asked for. */
static bool has_slow_pairs(void)
{
    unsigned most, b, c, d;
    return __get_cpuid(0, &most, &b, &c, &d) && b == signature_INTEL_ebx;
}

/* AMX-TILE and AMX-BF16. The system saves tiles only for a process that has asked for them, which costs nothing until one is used:
 * arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), which may be repeated and fails on systems that do not know tiles. */
static bool has_amx(void)
{
    const long request_permission = 0x1023, tile_data = 18;
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#else
static bool has_slow_pairs(void)
{
    return false;
}
#endif

bool td_isa_available(td_isa isa)
{
    if (isa == TD_ISA_BASELINE)
        return true;
#if TD_ISA_HAS_X86
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (isa == TD_ISA_AVX2)
        return avx2;
    return avx512 && (isa < TD_ISA_AVX512_BF16 || has_bf16()) && (isa < TD_ISA_AMX_BF16 || has_amx());
#else
    return false;
#endif
}

td_isa td_isa_best(void)
{
    for (int32_t isa = TD_ISA_COUNT - 1; isa > 0; isa--)
        if (td_isa_available((td_isa)isa) && !(isa == TD_ISA_AVX512_BF16 && has_slow_pairs()))
            return (td_isa)isa;
    return TD_ISA_BASELINE;
}

td_status *td_isa_choose(td_isa *out_isa)
{
    *out_isa = td_isa_best();
    const char *wanted = getenv("TANDEM_ISA");
    if (!wanted || !*wanted)
        return NULL;
    for (int32_t isa = 0; isa < TD_ISA_COUNT; isa++) {
        if (strcmp(wanted, names[isa]) != 0)
            continue;
        if (!td_isa_available((td_isa)isa))
            return TD_ERROR(TD_INVALID_ARGUMENT, "TANDEM_ISA=%s: this processor cannot run it; the best one here is %s",
                            wanted, names[*out_isa]);
        *out_isa = (td_isa)isa;
        return NULL;
    }
    return TD_ERROR(TD_INVALID_ARGUMENT,
                    "TANDEM_ISA=%s: unknown instruction set; known are baseline, avx2, avx512, avx512_bf16, amx_bf16",
                    wanted);
}
