/* The driver of fuzzers, for compilers without one: mutates good inputs for a stated time, from a stated seed.
 *
 * It knows no coverage. In its place stands what an input led to: one that is refused by a line of source that refused no other
 * joins the inputs that are mutated further, so that what lies behind the first checks is reached too. */
#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/philox.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 1 << 16, MOST_INPUTS = 4096, MOST_OUTCOMES = 1 << 14, HANG_SECONDS = 60 };

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

static input inputs[MOST_INPUTS];
static int n_inputs;
static uint64_t outcomes[MOST_OUTCOMES]; /* an open hash set; 0: empty */
static int n_outcomes;
static bool news;
static uint8_t current[ROOM];
static volatile size_t current_size;
static const char *target = "fuzz";
static uint64_t seed = 1, round_number, drawn;

/* ---- an input that breaks something is kept ----------------------------------------------------------------------------------- */

static void keep_input(void)
{
    char name[256];
    FILE *file = NULL;
    (void)snprintf(name, sizeof name, "%s-seed-%llu-round-%llu.input", target, (unsigned long long)seed,
                   (unsigned long long)round_number);
    file = fopen(name, "wb");
    if (!file)
        return;
    (void)fwrite(current, 1, current_size, file);
    (void)fclose(file);
    (void)fprintf(stderr, "%s: the input is kept: %s\n", target, name);
}

/* The process is lost: writing a file from a handler is worth the risk. */
static void on_signal(int number)
{
    signal(number, SIG_DFL);
    (void)fprintf(stderr, number == SIGALRM ? "%s: no end after %d seconds\n" : "%s: signal %d\n", target,
                  number == SIGALRM ? HANG_SECONDS : number);
    keep_input();
    raise(number == SIGALRM ? SIGABRT : number);
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    bool sanitizer = __sanitizer_set_death_callback != NULL; /* it reports memory errors better than we do */
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (!sanitizer || fatal[i] == SIGABRT || fatal[i] == SIGALRM)
            signal(fatal[i], on_signal);
    if (sanitizer)
        __sanitizer_set_death_callback(keep_input);
}

/* ---- what was new ---------------------------------------------------------------------------------------------------------------- */

void fuzz_outcome(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    hash |= 1;
    uint64_t at = hash % MOST_OUTCOMES;
    while (outcomes[at] && outcomes[at] != hash)
        at = (at + 1) % MOST_OUTCOMES;
    if (outcomes[at] || n_outcomes >= MOST_OUTCOMES / 2)
        return;
    outcomes[at] = hash;
    n_outcomes++;
    news = true;
}

/* ---- mutations --------------------------------------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t below)
{
    uint32_t bits[4];
    td_philox_block(td_philox_key_of(seed, "fuzz", target), round_number, drawn++, bits);
    return below ? (((uint64_t)bits[0] << 32) | bits[1]) % below : 0;
}

/* Puts `size` bytes in the place of `gone` bytes at `at`; too much for the room: nothing. */
static void replace(size_t at, size_t gone, const void *bytes, size_t size)
{
    size_t n = current_size;
    if (n - gone + size > ROOM)
        return;
    uint8_t copy[256];
    size = size > sizeof copy ? sizeof copy : size;
    memcpy(copy, bytes, size); /* it may lie in `current` */
    memmove(current + at + size, current + at + gone, n - at - gone);
    memcpy(current + at, copy, size);
    current_size = n - gone + size;
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static void replace_number(void)
{
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "255",
                                          "65536",
                                          "2147483647",
                                          "4294967296",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "1e400",
                                          "-1e-400",
                                          "nan",
                                          "inf",
                                          "0.5",
                                          "00",
                                          ""};
    size_t at = draw(current_size), end;
    while (at < current_size && !is_digit(current[at]))
        at++;
    for (end = at; end < current_size && is_digit(current[end]); end++)
        continue;
    const char *number = numbers[draw(sizeof numbers / sizeof *numbers)];
    replace(at, end - at, number, strlen(number));
}

static void replace_word(void)
{
    size_t n = 0, at = draw(current_size + 1), gone = draw(4) ? 0 : draw(12);
    while (fuzz_words[n])
        n++;
    if (!n)
        return;
    const char *word = fuzz_words[draw(n)];
    gone = at + gone > current_size ? current_size - at : gone;
    replace(at, gone, word, strlen(word));
}

static void splice(void)
{
    const input *other = &inputs[draw((uint64_t)n_inputs)];
    size_t from = draw(other->size + 1), size = draw(1 + (other->size - from < 200 ? other->size - from : 200));
    replace(draw(current_size + 1), 0, other->data + from, size);
}

static void set_integer(void)
{
    static const int64_t values[] = {
        0,          1,         -1,        127,        128,       255,       256,     INT16_MAX,
        UINT16_MAX, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 24, (int64_t)1 << 40};
    size_t size = (size_t)1 << draw(4);
    if (current_size < size)
        return;
    memcpy(current + draw(current_size - size + 1), &values[draw(sizeof values / sizeof *values)], size);
}

static void mutate_once(void)
{
    size_t n = current_size, at = n ? draw(n) : 0, span = 1 + draw(draw(4) ? 8 : 100);
    span = at + span > n ? n - at : span;
    switch (draw(10)) {
    case 0:
        if (n)
            current[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        if (n)
            current[at] = (uint8_t)draw(256);
        break;
    case 2:
        replace(at, span, "", 0);
        break;
    case 3:
        replace(at, 0, current + at, span);
        break;
    case 4:
        replace(draw(n + 1), 0, current + at, span);
        break;
    case 5:
        replace_number();
        break;
    case 6:
        set_integer();
        break;
    case 7:
        splice();
        break;
    case 8:
        if (draw(16) == 0)
            current_size = at;
        break;
    default:
        replace_word();
    }
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------- */

static void add_input(const uint8_t *data, size_t size)
{
    if (n_inputs == MOST_INPUTS)
        return;
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        return;
    memcpy(copy, data, size);
    inputs[n_inputs++] = (input){copy, size};
}

/* From memory of its exact size, so that a sanitizer sees what is read behind its end. */
static void run_current(void)
{
    uint8_t *data = malloc(current_size ? current_size : 1);
    FUZZ_CHECK(data);
    memcpy(data, current, current_size);
    news = false;
    (void)LLVMFuzzerTestOneInput(data, current_size);
    free(data);
}

static void run_round(void)
{
    const input *from = &inputs[draw((uint64_t)n_inputs)];
    memcpy(current, from->data, from->size);
    current_size = from->size;
    for (uint64_t k = 1 + draw(draw(2) ? 4 : 16); k > 0; k--)
        mutate_once();
    run_current();
    if (news)
        add_input(current, current_size);
}

static void run_seeds(void)
{
    size_t size;
    for (int i = 0; (size = fuzz_seed(i, current, ROOM)) > 0; i++) {
        current_size = size;
        add_input(current, size);
        run_current();
    }
    FUZZ_CHECK(n_inputs > 0);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_for(double seconds)
{
    double begin = now(), elapsed = 0;
    (void)printf("%s: seed %llu, %g s\n", target, (unsigned long long)seed, seconds);
    (void)fflush(stdout);
    run_seeds();
    for (round_number = 1; elapsed < seconds; round_number++) {
        drawn = 0;
        if (round_number % 16 == 1)
            (void)alarm(HANG_SECONDS);
        run_round();
        elapsed = now() - begin;
    }
    (void)alarm(0);
    (void)printf("%s: %llu inputs in %.1f s, %d outcomes, nothing broke\n", target,
                 (unsigned long long)round_number - 1, elapsed, n_outcomes);
    for (int i = 0; i < n_inputs; i++)
        free(inputs[i].data);
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: %s [--seconds N] [--share N] [--seed N] | FILE...\n", target);
    return 2;
}

static double setting(const char *variable, double fallback)
{
    const char *text = getenv(variable);
    return text && *text ? strtod(text, NULL) : fallback;
}

int main(int argc, char **argv)
{
    double seconds = setting("TANDEM_FUZZ_SECONDS", 1), share = 1;
    target = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    seed = (uint64_t)setting("TANDEM_FUZZ_SEED", 1);
    watch();
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (!strcmp(argv[i], "--seconds"))
            seconds = strtod(argv[i + 1], NULL);
        else if (!strcmp(argv[i], "--share"))
            share = strtod(argv[i + 1], NULL);
        else if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 10);
        else
            return usage();
    }
    if (i < argc && argv[i][0] == '-')
        return usage();
    if (i == argc)
        run_for(share * seconds);
    for (; i < argc; i++) {
        current_size = fuzz_read(argv[i], current, ROOM);
        run_current();
        (void)printf("%s: %s: nothing broke\n", target, argv[i]);
    }
    return 0;
}
