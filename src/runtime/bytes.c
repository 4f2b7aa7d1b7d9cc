/* SPDX-License-Identifier: MIT */
/* Every byte of a plan moves here, by the device that it is on: the rest of the runtime adds to addresses,
 * and never asks what is there. */
#include "plan.h"

ash_status ash_plan__write(ash_device *device, ash_address to, const void *from, uint64_t size,
                           ash_diag *diag) {
    return size ? device->class->copy_in(device, to, from, size, diag) : ASH_OK;
}

ash_status ash_plan__read(ash_device *device, void *to, ash_address from, uint64_t size, ash_diag *diag) {
    return size ? device->class->copy_out(device, to, from, size, diag) : ASH_OK;
}

ash_status ash_plan__copy(ash_device *device, ash_address to, ash_address from, uint64_t size,
                          ash_diag *diag) {
    return size ? device->class->copy(device, to, from, size, diag) : ASH_OK;
}

ash_status ash_plan__fill(ash_device *device, ash_address to, uint8_t value, uint64_t size,
                          ash_diag *diag) {
    return size ? device->class->fill(device, to, value, size, diag) : ASH_OK;
}

ash_status ash_plan__take(ash_device *device, ash_address to, const ash_given *given, ash_diag *diag) {
    return given->address ? ash_plan__copy(device, to, given->address, given->size, diag)
                          : ash_plan__write(device, to, given->data, given->size, diag);
}

ash_status ash_plan__fetch(ash_device *device, void *to, const ash_given *given, ash_diag *diag) {
    if (!given->data) return ash_plan__read(device, to, given->address, given->size, diag);
    if (given->size) memcpy(to, given->data, given->size);
    return ASH_OK;
}

ash_status ash_plan__allocate(const ash_plan *plan, uint64_t size, uint64_t align, ash_storage **out,
                              ash_diag *diag) {
    return ash_plan__allocate_on(plan, 0, size, align, out, diag);
}

ash_status ash_plan__allocate_on(const ash_plan *plan, uint32_t device, uint64_t size, uint64_t align,
                                 ash_storage **out, ash_diag *diag) {
    ASH_TRY(ash_storage_create(plan->shared->devices[device], size, align, out, diag));
    ash_status status = ash_storage_allocate(*out, diag);
    if (status == ASH_OK) return ASH_OK;
    ash_storage_release(*out);
    *out = NULL;
    return status;
}
