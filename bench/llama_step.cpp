// SPDX-License-Identifier: MIT
// The time of a step of a decoder in llama.cpp; llama_compare.py builds it.
//
// usage: llama_step MODEL.gguf THREADS PAST STEPS
//
// Fills the cache with PAST tokens, one by one, runs two steps of one token, and prints the median of STEPS more in
// milliseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

static double step(llama_context *context, llama_token token) {
    auto begin = std::chrono::steady_clock::now();
    if (llama_decode(context, llama_batch_get_one(&token, 1))) exit(1);
    llama_synchronize(context);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int threads = atoi(argv[2]), past = atoi(argv[3]), steps = atoi(argv[4]);
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)(past + steps + 2);
    params.n_threads = params.n_threads_batch = threads;
    params.type_k = params.type_v = GGML_TYPE_F32;
    llama_context *context = model ? llama_init_from_model(model, params) : nullptr;
    if (!context) return 1;
    std::vector<double> times;
    for (int i = 0; i < past + 2 + steps; i++) times.push_back(step(context, (llama_token)(100 + i)));
    times.erase(times.begin(), times.end() - steps);
    std::sort(times.begin(), times.end());
    printf("%.3f\n", times[times.size() / 2]);
    llama_free(context);
    llama_model_free(model);
}
