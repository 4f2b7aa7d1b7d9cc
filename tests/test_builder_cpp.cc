/* SPDX-License-Identifier: MIT */
// The public headers are usable from C++: a network built with builder.h.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

#include "ashlar/builder.h"
#include "ashlar/dlpack.h"
#include "ashlar/function.h"
#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/train.h"

static ash_status nothing(void *, const ash_call *, ash_diag *) {
    return ASH_OK;
}

static void builds_from_cpp(void **) {
    ash_diag diag;
    ash_context *context = nullptr;
    ash_graph *g = nullptr;
    assert_int_equal(ash_context_create(nullptr, &context, &diag), ASH_OK);
    assert_int_equal(ash_graph_create(context, "cpp", &g, &diag), ASH_OK);
    ash_type type = {ASH_F32, 2, {ash_graph_var(g, "n", 1, 8), 4}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_value y = ash_softmax(g, ash_add(g, ash_relu(g, x), ash_scalar(g, ASH_F32, 0.5)), -1);
    ash_value flags = ash_and(g, ash_not(g, ash_lt(g, x, y)), ash_eq(g, x, y));
    ash_function function = ASH_INIT(ash_function);
    function.name = "nothing";
    function.run = nothing;
    function.pure = true;
    assert_int_equal(ash_context_add_function(context, &function, &diag), ASH_OK);
    assert_int_equal(ash_custom(g, "nothing", &x, 1, &type, 1, nullptr, &x), ASH_OK);
    ash_graph_output(g, "y", ash_select(g, flags, x, y));
    assert_int_equal(ash_graph_status(g, &diag), ASH_OK);
    assert_int_equal(ash_graph_verify(g, &diag), ASH_OK);
    ash_graph_destroy(g);
    ash_context_destroy(context);
}

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(builds_from_cpp)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
