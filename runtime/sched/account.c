#include "runtime/sched/account.h"

#include <stddef.h>

void sy_account_start(struct sy_account *a, sy_ns now)
{
    *a = (struct sy_account){.begun_ns = now, .now_ns = now};
}

static void charge(struct sy_account *a, struct sy_account_owner *owner, sy_ns ns)
{
    owner->used_ns += ns;
    if (owner->tenant_ns)
        *owner->tenant_ns += ns;
    a->charged_ns += ns;
}

void sy_account_pass(struct sy_account *a, sy_ns now)
{
    if (now <= a->now_ns)
        return;
    sy_ns passed = now - a->now_ns;
    a->now_ns = now;
    if (a->n_users == 0) {
        a->idle_ns += passed;
        return;
    }
    sy_ns each = passed / (sy_ns)a->n_users, rest = passed % (sy_ns)a->n_users;
    for (struct sy_account_owner *o = a->users; o; o = o->next) {
        charge(a, o, each + rest);
        rest = 0;
    }
}

void sy_account_begin(struct sy_account *a, struct sy_account_owner *owner, sy_ns now)
{
    sy_account_pass(a, now);
    if (owner->uses)
        return;
    owner->uses = true;
    owner->next = a->users;
    a->users = owner;
    a->n_users++;
}

void sy_account_end(struct sy_account *a, struct sy_account_owner *owner, sy_ns now)
{
    sy_account_pass(a, now);
    if (!owner->uses)
        return;
    struct sy_account_owner **at = &a->users;
    while (*at != owner)
        at = &(*at)->next;
    *at = owner->next;
    owner->next = NULL;
    owner->uses = false;
    a->n_users--;
}

bool sy_account_is_valid(const struct sy_account *a)
{
    return a->idle_ns + a->charged_ns == a->now_ns - a->begun_ns;
}
