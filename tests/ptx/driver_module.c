/* SPDX-License-Identifier: MIT */
/* The driver's functions: modules, the linker, functions. What the linker makes, a cubin on hardware,
 * is the text behind a mark. */
#include "driver.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char mark[] = "\177PTX";
enum { MARK = 4 };

typedef struct CUlinkState_st {
    ptx_object object;
    char *text; /* mark and PTX */
    size_t len;
} ptx_link;

/* --- options of the JIT * ------------------------------------------------------------------------- */

static void *option(CUjit_option wanted, unsigned n, const CUjit_option *options, void *const *values) {
    for (unsigned i = 0; i < n; i++)
        if (options[i] == wanted) return values[i];
    return NULL;
}

/* The refusal goes where the caller wants its log, and its length where that of the buffer was. */
static void log_refusal(unsigned n, const CUjit_option *options, void **values) {
    char *log = option(CU_JIT_ERROR_LOG_BUFFER, n, options, values);
    size_t room = (size_t)(uintptr_t)option(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, n, options, values);
    int len = log && room ? snprintf(log, room, "ptxas error: %s", ptx_refusal()) : 0;
    for (unsigned i = 0; i < n; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) values[i] = (void *)(uintptr_t)len;
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = NULL;
    }
}

/* --- modules -------------------------------------------------------------------------------------- */

/* The version of PTX that a driver knows, as 74 for 7.4. */
static int ptx_version_of(int driver) {
    static const int twelve[] = {80, 81, 82, 83, 84, 85, 85, 86, 87, 88};
    int major = driver / 1000, minor = driver % 1000 / 10;
    if (major == 12) return twelve[minor > 9 ? 9 : minor];
    return major > 12 ? 90 + minor + 10 * (major - 13) : 70 + minor;
}

/* Writes a module's text to the folder that PTX_DUMP names, once: the file is called by its hash. */
static void dump(const char *text, size_t len) {
    const char *folder = getenv("PTX_DUMP");
    char path[4096], own[4096 + 32];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    if (!folder || !*folder) return;
    for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    int room = snprintf(path, sizeof path, "%s/%016llx.ptx", folder, (unsigned long long)hash);
    if (room < 0 || (size_t)room >= sizeof path || access(path, F_OK) == 0) return;
    snprintf(own, sizeof own, "%s.%ld", path, (long)getpid()); /* whole, or not there */
    mkdir(folder, 0777);
    FILE *out = fopen(own, "w");
    if (!out) return;
    bool written = fwrite(text, 1, len, out) == len;
    if (fclose(out) || !written || rename(own, path)) unlink(own);
}

static CUresult read_module(const char *text, size_t len, ptx_module **module) {
    *module = NULL;
    ptx_refuse("no PTX");
    REFUSE_IF(len >= 4 && !memcmp(text, "\177ELF", 4), CUDA_ERROR_NO_BINARY_FOR_GPU);
    ptx_module *m = ptx_module_read(text, len, ptx_current()->device);
    REFUSE_IF(!m, CUDA_ERROR_INVALID_PTX);
    CUresult code = CUDA_SUCCESS;
    if (m->version > ptx_version_of(ptx_is.driver_version)) {
        ptx_refuse("PTX %d.%d is newer than the driver", m->version / 10, m->version % 10);
        code = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    } else if (m->target > ptx_is.capability) {
        ptx_refuse("sm_%d is newer than the device", m->target);
        code = CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    for (uint32_t i = 0; i < m->n_kernels && !code; i++) {
        if (m->kernels[i]->shared_bytes <= 48 * 1024) continue;
        ptx_refuse("a kernel declares %u bytes of shared memory, of 49152", m->kernels[i]->shared_bytes);
        code = CUDA_ERROR_INVALID_PTX;
    }
    if (code) {
        ptx_module_free(m);
        return code;
    }
    dump(text, len);
    *module = m;
    return code;
}

static void module_destroy(ptx_object *object) {
    ptx_module_free(((ptx_module_handle *)object)->module);
    free(object);
}

static CUresult load(CUmodule *handle, const void *image, unsigned n, CUjit_option *options,
                     void **values) {
    REFUSE_IF(!handle || !image, CUDA_ERROR_INVALID_VALUE);
    const char *text = image;
    if (!strncmp(text, mark, MARK)) text += MARK;
    ptx_module *module;
    CUresult code = read_module(text, strlen(text), &module);
    if (code) {
        log_refusal(n, options, values);
        return code;
    }
    ptx_module_handle *m = ptx_alloc(1, sizeof *m);
    ptx_object_add(&m->object, A_MODULE, module_destroy);
    m->module = module;
    *handle = m;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER(cuModuleLoadData, NEEDS_CONTEXT);
    return load(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned numOptions, CUjit_option *options,
                            void **optionValues) {
    ENTER(cuModuleLoadDataEx, NEEDS_CONTEXT);
    return load(module, image, numOptions, options, optionValues);
}

CUresult cuModuleUnload(CUmodule hmod) {
    ENTER(cuModuleUnload, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(hmod, A_MODULE), CUDA_ERROR_INVALID_HANDLE);
    ptx_wait_for_all();
    ptx_object_destroy(hmod);
    return ptx_state();
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    ENTER(cuModuleGetFunction, NEEDS_CONTEXT);
    REFUSE_IF(!hfunc || !name, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!ptx_object_is(hmod, A_MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (uint32_t i = 0; i < hmod->module->n_kernels; i++) {
        if (strcmp(hmod->module->kernels[i]->name, name) != 0) continue;
        *hfunc = hmod->module->kernels[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    ENTER(cuModuleGetGlobal_v2, NEEDS_CONTEXT);
    REFUSE_IF(!name, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!ptx_object_is(hmod, A_MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (uint32_t i = 0; i < hmod->module->n_variables; i++) {
        const ptx_variable *v = &hmod->module->variables[i];
        if (strcmp(v->name, name) != 0) continue;
        if (dptr) *dptr = v->address;
        if (bytes) *bytes = v->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* --- the linker ----------------------------------------------------------------------------------- */

static void link_destroy(ptx_object *object) {
    free(((ptx_link *)object)->text);
    free(object);
}

CUresult cuLinkCreate_v2(unsigned numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut) {
    ENTER(cuLinkCreate_v2, NEEDS_CONTEXT);
    (void)numOptions, (void)options, (void)optionValues;
    REFUSE_IF(!stateOut, CUDA_ERROR_INVALID_VALUE);
    ptx_link *l = ptx_alloc(1, sizeof *l);
    ptx_object_add(&l->object, A_LINK, link_destroy);
    *stateOut = l;
    return CUDA_SUCCESS;
}

/* One text: there is nothing that links several. */
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned numOptions, CUjit_option *options, void **optionValues) {
    ENTER(cuLinkAddData_v2, NEEDS_CONTEXT);
    (void)name;
    REFUSE_IF(!ptx_object_is(state, A_LINK), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(type != CU_JIT_INPUT_PTX || !data || state->text, CUDA_ERROR_INVALID_VALUE);
    size_t len = strnlen(data, size);
    ptx_module *module;
    CUresult code = read_module(data, len, &module);
    ptx_module_free(module);
    if (code) {
        log_refusal(numOptions, options, optionValues);
        return code;
    }
    state->text = ptx_alloc(MARK + len + 1, 1);
    memcpy(state->text, mark, MARK);
    memcpy(state->text + MARK, data, len);
    state->len = MARK + len + 1;
    return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
    ENTER(cuLinkComplete, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(state, A_LINK), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(!cubinOut || !state->text, CUDA_ERROR_INVALID_VALUE);
    *cubinOut = state->text;
    if (sizeOut) *sizeOut = state->len;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    ENTER(cuLinkDestroy, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(state, A_LINK), CUDA_ERROR_INVALID_HANDLE);
    ptx_object_destroy(state);
    return CUDA_SUCCESS;
}

/* --- functions ------------------------------------------------------------------------------------ */

/* The handle of the module that a kernel is of; NULL when it is unloaded. The kernel itself is not
 * looked at before. */
static CUmodule module_of(const ptx_kernel *k) {
    for (ptx_object *o = ptx_current()->objects; o; o = o->next) {
        if (o->kind != A_MODULE) continue;
        const ptx_module *m = ((ptx_module_handle *)o)->module;
        for (uint32_t i = 0; i < m->n_kernels; i++)
            if (m->kernels[i] == k) return (CUmodule)o;
    }
    return NULL;
}

static int most_shared_bytes(void) {
    int c = ptx_is.capability;
    return 1024 * (c >= 90 && c < 120 ? 227 : c == 80 || c == 87 ? 163 : c > 80 ? 99 : c == 75 ? 64 : 96);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    ENTER(cuFuncGetModule, NEEDS_CONTEXT);
    REFUSE_IF(!hmod, CUDA_ERROR_INVALID_VALUE);
    *hmod = module_of(hfunc);
    return *hmod ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    ENTER(cuFuncGetAttribute, NEEDS_CONTEXT);
    REFUSE_IF(!pi, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!module_of(hfunc), CUDA_ERROR_INVALID_HANDLE);
    const ptx_module *m = hfunc->module;
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *pi = hfunc->most_threads ? (int)hfunc->most_threads : 1024;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *pi = (int)hfunc->shared_bytes; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *pi = 0; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *pi = (int)hfunc->local_bytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *pi = hfunc->frame_bytes / 4 < 255 ? (int)hfunc->frame_bytes / 4 : 255;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *pi = m->version; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *pi = ptx_is.capability; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *pi = hfunc->dynamic_limit; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    ENTER(cuFuncSetAttribute, NEEDS_CONTEXT);
    REFUSE_IF(!module_of(hfunc), CUDA_ERROR_INVALID_HANDLE);
    if (attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    REFUSE_IF(attrib != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(value < 0 || value > most_shared_bytes() - (int)hfunc->shared_bytes,
              CUDA_ERROR_INVALID_VALUE);
    hfunc->dynamic_limit = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    ENTER(cuFuncSetCacheConfig, NEEDS_CONTEXT);
    REFUSE_IF(!module_of(hfunc), CUDA_ERROR_INVALID_HANDLE);
    return config >= 0 && config <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* By threads and shared memory; registers are not known here. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor, NEEDS_CONTEXT);
    REFUSE_IF(!numBlocks || blockSize <= 0 || blockSize > PTX_THREADS, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!module_of(func), CUDA_ERROR_INVALID_HANDLE);
    size_t shared = func->shared_bytes + dynamicSMemSize + 1024;
    size_t by_shared = ((size_t)most_shared_bytes() + 1024) / shared,
           by_threads = 2048 / (size_t)((blockSize + 31) / 32 * 32);
    size_t n = by_shared < by_threads ? by_shared : by_threads;
    *numBlocks = n < 32 ? (int)n : 32;
    return CUDA_SUCCESS;
}

/* --- launches ------------------------------------------------------------------------------------- */

ptx_task *ptx_kernel_task(const CUDA_KERNEL_NODE_PARAMS *p, int stream, CUresult *why) {
    ptx_kernel *k = p->func;
    const unsigned most = ptx_most_blocks ? ptx_most_blocks : INT32_MAX,
                   grid[] = {p->gridDimX, p->gridDimY, p->gridDimZ},
                   threads[] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    *why = CUDA_ERROR_INVALID_HANDLE;
    if (!module_of(k)) return NULL;
    *why = CUDA_ERROR_INVALID_VALUE;
    uint64_t n = (uint64_t)threads[0] * threads[1] * threads[2];
    if (grid[0] > most || grid[1] > 65535 || grid[2] > 65535 || !blocks || blocks >> 30 || !n ||
        n > PTX_THREADS || threads[2] > 64 || (k->most_threads && n > k->most_threads) ||
        (k->n_params && !p->kernelParams) || p->extra)
        return NULL;
    if (k->required[0] && memcmp(k->required, threads, sizeof threads) != 0) return NULL;
    if ((int64_t)p->sharedMemBytes > k->dynamic_limit) return NULL;
    *why = CUDA_SUCCESS;
    ptx_task *t = ptx_task_new(TASK_KERNEL, ptx_current()->device, stream);
    ptx_launch *l = &t->launch;
    *l = (ptx_launch){
        .kernel = k, .dynamic_bytes = p->sharedMemBytes, .n_blocks = blocks, .device = t->device};
    memcpy(l->grid, grid, sizeof grid);
    memcpy(l->threads, threads, sizeof threads);
    l->params = ptx_alloc(k->param_bytes, 1);
    for (uint32_t i = 0; i < k->n_params; i++)
        memcpy(l->params + k->params[i].offset, p->kernelParams[i], k->params[i].bytes);
    return t;
}
