/* Cases of optimizers, alone and fused with an embedding's backward. */
#include "tests/conformance/conformance.h"

/* An element-wise rule with these states, on dense and row-sparse gradients. */
#define RULE_CASES(rule, dense_states, sparse_states, big_states)                                                      \
    {rule, "f32[37,5] f32[37,5] f32*16:coefficients" dense_states, NULL, 1, 0, 0},                                     \
        {rule, "f32[37,5] f32[37,5]{N} f32*16:coefficients" sparse_states, NULL, 1, 30, 0},                            \
    {                                                                                                                  \
        rule, "f32[257,129] f32[257,129] f32*16:coefficients" big_states, NULL, 1, 0, 0                                \
    }
#define STATE " f32[37,5]:positive"
#define BIG_STATE " f32[257,129]:positive"

#define UPDATE_CASE(rule, states)                                                                                      \
    {                                                                                                                  \
        "embedding_update", "f32[50,8] f32[B,8] i64[B]{N}<50 - f32*16=0.5,0.05,0.01,0.9,0.99,0.5,1,1" states,          \
            "rule=" rule, 9, 40, 0                                                                                     \
    }

#define NUMBERS " f32*16=0.5,0.05,0.01,0.9,0.99,0.5,1,1"

const conformance_case optimizer_cases[] = {
    {"sgd", "f32[37,5] f32[37,5] f32*16:coefficients", NULL, 1, 0, 0},
    {"sgd", "f32[37,5] f32[37,5]{N} f32*16:coefficients", NULL, 1, 30, 0},
    RULE_CASES("sgd", STATE, STATE, BIG_STATE),
    RULE_CASES("adagrad", STATE, STATE, BIG_STATE),
    {"rowwise_adagrad", "f32[37,5] f32[37,5]{N} f32*16:coefficients f32[37]:positive", NULL, 1, 30, 0},
    {"rowwise_adagrad", "f32[900,33] f32[900,33]{N} f32*16:coefficients f32[900]:positive", NULL, 1, 700, 0},
    RULE_CASES("rmsprop", STATE, STATE, BIG_STATE),
    RULE_CASES("adam", STATE STATE, STATE STATE, BIG_STATE BIG_STATE),
    RULE_CASES("adamw", STATE STATE, STATE STATE, BIG_STATE BIG_STATE),
    RULE_CASES("adam_weight_decay", STATE STATE, STATE STATE, BIG_STATE BIG_STATE),
    {"lamb", "f32[37,5] f32[37,5] f32*16:coefficients" STATE STATE, NULL, 1, 0, 0},
    {"lamb", "f32[257,129] f32[257,129] f32*16:coefficients" BIG_STATE BIG_STATE, NULL, 1, 0, 0},
    RULE_CASES("lion", STATE, STATE, BIG_STATE),
    {"lazy_adam", "f32[37,5] f32[37,5]{N} f32*16:coefficients" STATE STATE, NULL, 1, 30, 0},
    {"lazy_adam", "f32[900,16] f32[900,16]{N} f32*16:coefficients f32[900,16]:positive f32[900,16]:positive", NULL, 1,
     700, 0},
    {"ftrl", "f32[37,5] f32[37,5]{N} f32*16:coefficients" STATE STATE, NULL, 1, 30, 0},
    {"update_mixed", "f32[37,5] f16[37,5] - - - f32*16:coefficients" STATE STATE " -", "rule=adamw copy=f16 outputs=1",
     1, 0, 0},
    {"update_mixed",
     "f32[257,129] bf16[257,129] f32[257,129] f64*3=0,1,1 f32[1] f32*16:coefficients" BIG_STATE BIG_STATE " -",
     "rule=adam copy=bf16 outputs=1", 1, 0, 0},
    {"update_mixed", "f32[257,129] f32[257,129] f32[257,129] f64*3=1,1,1 - f32*16:coefficients" BIG_STATE " - -",
     "rule=lion outputs=0", 1, 0, 0},
    {"update_mixed", "f32[37,5] f16[37,5] - - f32[1] f32*16:coefficients - - -", "rule=sgd copy=bf16 outputs=1", 1, 0,
     0},
    {"update_mixed", "f32[1500,1500] f16[1500,1500] - - - f32*16:coefficients f32[1500,1500]:positive - -",
     "rule=rmsprop copy=f16 outputs=1", 1, 0, 0},
    {"adamw", "bf16[37,5] f32[37,5] f32*16:coefficients" STATE STATE, NULL, 1, 0, 0},
    {"lion", "f16[257,129] f32[257,129] f32*16:coefficients" BIG_STATE, "rounding=-77", 1, 0, 0},
    {"update_mixed", "bf16[257,129] bf16[257,129] - - f32[1] f32*16:coefficients" BIG_STATE BIG_STATE " -",
     "rule=adam rounding=123456789 outputs=0", 1, 0, 0},
    {"update_mixed", "f16[37,5] f32[37,5] - - - f32*16:coefficients - - -", "rule=sgd outputs=0", 1, 0, 0},
    {"update_mixed", /* many parts, odd sizes, one longer than a block */
     "f32[1] bf16[1] - - f32[1] f32*16:coefficients f32[1]:positive - - "
     "f32[131,131] bf16[131,131] f32[131,131] f64*3=0,1,1 f32[1] f32*16:coefficients f32[131,131]:positive - - "
     "f32[1023] bf16[1023] f32[1023] f64*3=1,1,1 - f32*16:coefficients f32[1023]:positive - -",
     "rule=adagrad copy=bf16 outputs=3", 1, 0, 0},
    {"early_update", "f32[32,5] bf16[32,5] - - - f32*16:coefficients f32[32,5]:positive f32[32,5]:positive -",
     "rule=adamw copy=bf16 outputs=1", 1, 0, 0},
    {"early_update",
     "f32[1100,1000] f32[1100,1000] f32[1100,1000] f64*3=0,1,1 - f32*16:coefficients f32[1100,1000]:positive - -",
     "rule=lion outputs=0", 1, 0, 0},
    {"settle_update",
     "f32[32,5] f32[32,5] - - f32[1]:positive f32*16:coefficients f32[32,5]:positive f32[32,5]:positive - f64*1=1 "
     "i64[1]<1 f32[480]:positive f16[32,5]",
     "rule=adam copy=f16", 1, 0, 0},
    {"settle_update",
     "f32[32,5] f16[32,5] f32[32,5] f64*3=0,1,1 f32[1]:positive f32*16:coefficients - - - f64*1=0 i64[1]<1 f32[160] -",
     "rule=sgd", 1, 0, 0},
    UPDATE_CASE("sgd", ""),
    UPDATE_CASE("adagrad", " f32[50,8]:positive"),
    UPDATE_CASE("rowwise_adagrad", " f32[50]:positive"),
    UPDATE_CASE("lazy_adam", " f32[50,8]:positive f32[50,8]:positive"),
    {"embedding_update", "f32[50,3] f32[B,3] i32[B,4]<45 f32[B,4] f32*16=0.5,0.05,0.01,0.9 f32[50,3]:positive",
     "rule=adagrad pooling=mean offset=5", 9, 0, 0},
    {"embedding_update", "f32[50,16] f32[B,16] i64[B]<50 - f32*16=0.5,0.05,0.01,0.9 f32[50,16]:positive",
     "rule=adagrad pooling=none", 90, 0, 0},
    {"embedding_updates", "f32[50,8] f32[B,8] i64[B]{N}<50 -" NUMBERS " - - -",
     "rule=sgd pooling=1 offset=0 column=0 table=0 rounding=0", 9, 40, 0},
    {"embedding_updates",
     "f32[50,8] f32[B,20] i64[B]{N}<50 -" NUMBERS " f32[50,8]:positive - - "
     "f32[70,5] f32[B,20] i32[B,3]<60 f32[B,3]" NUMBERS " f32[70,5]:positive - -",
     "rule=adagrad pooling=1,2 offset=0,10 column=4,15 table=0,1 rounding=0,0", 9, 40, 0},
    {"embedding_updates", /* one table, three lookups; then another */
     "f32[900,6] f32[B,6] i64[B]{N}<900 -" NUMBERS " f32[900,6]:positive f32[900,6]:positive - "
     "f32[900,6] f32[B,9] i64[B]<900 -" NUMBERS " f32[900,6]:positive f32[900,6]:positive - "
     "f32[900,6] f32[B,9] i32[B,2]<20 f32[B,2]" NUMBERS " f32[900,6]:positive f32[900,6]:positive -",
     "rule=lazy_adam pooling=1,0,2 offset=0,0,5 column=0,3,1 table=0,0,0 rounding=0,0,0", 1500, 3000, 0},
    {"embedding_updates",
     "f32[40,600] f32[B,600] i64[B]<40 -" NUMBERS " f32[40]:positive - - "
     "f32[40,600] f32[B,600] i64[B]<9 -" NUMBERS " f32[40]:positive - - "
     "f32[3,1] f32[B,600] i64[B,2]<3 -" NUMBERS " f32[3]:positive - -",
     "rule=rowwise_adagrad pooling=1,2,2 offset=0,31,0 column=0,0,599 table=0,0,1 rounding=0,0,0", 20, 0, 0},
    {"embedding_updates",
     "f32[50,8] f32[B,8] i64[B]{N}<50 -" NUMBERS " - - - f32[50,8] f32[B,8] i64[B]<50:bad -" NUMBERS " - - -",
     "rule=sgd pooling=1,1 offset=0,0 column=0,0 table=0,1 rounding=0,0", 9, 40, CASE_FAILS},
    {"adagrad", "bf16[37,5] f32[37,5]{N} f32*16:coefficients" STATE, NULL, 1, 30, 0},
    {"sgd", "f16[37,5] f32[37,5]{N} f32*16:coefficients", "rounding=-77", 1, 30, 0},
    {"embedding_update", "bf16[50,8] f32[B,8] i64[B]{N}<50 -" NUMBERS " f32[50,8]:positive f32[50,8]:positive",
     "rule=lazy_adam", 900, 2000, 0},
    {"embedding_update", "f16[50,13] f32[B,13] i64[B]{N}<50 -" NUMBERS " f32[50]:positive",
     "rule=rowwise_adagrad rounding=123456789", 900, 2000, 0},
    {"embedding_updates",
     "f32[50,8] f32[B,20] i64[B]{N}<50 -" NUMBERS " f32[50,8]:positive - - "
     "bf16[70,5] f32[B,20] i32[B,3]<60 f32[B,3]" NUMBERS " f32[70,5]:positive - -",
     "rule=adagrad pooling=1,2 offset=0,10 column=4,15 table=0,1 rounding=0,999", 9, 40, 0},
    {"embedding_update", "f32[50,8] f32[B,8] i64[B]{N}<50:bad - f32*16=0.5,0.05", "rule=sgd", 9, 40, CASE_FAILS},
    {0},
};
