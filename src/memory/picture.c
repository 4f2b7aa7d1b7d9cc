/* SPDX-License-Identifier: MIT */
/* Plans as pictures: time to the right, offset upwards, a rectangle per root. The page draws on a canvas
 * from a table of numbers, so that a hundred thousand rectangles stay quick, and needs nothing from
 * elsewhere; the SVG is one arena as a still. Both show the curve of live bytes and the bound over it.
 * Views are not drawn: they lie in their roots. */
#include "report.h"
#include "sort.h"

typedef struct picture {
    const ash_memory_problem *problem;
    const ash_memory_place *places;
    const ash_memory_arena *arenas;
    size_t arena_count;
    int64_t first, last;
    ash_memory__span *spans; /* per buffer; of roots, those of all that lies in them */
} picture;

static ash_status picture_init(picture *p, const ash_allocator *a, const ash_memory_problem *problem,
                               const ash_memory_plan *plan, ash_diag *diag) {
    *p = (picture){.problem = problem, .places = ash_memory_plan_places(plan, NULL)};
    p->arenas = ash_memory_plan_arenas(plan, &p->arena_count);
    p->spans = ash_mem_alloc(a, problem->buffer_count, sizeof *p->spans);
    if (!p->spans) return ASH_NO_MEMORY(diag);
    ash_memory__find_spans(problem, p->spans, &p->first, &p->last);
    return ASH_OK;
}

static bool is_drawn(const picture *p, uint32_t i) {
    return p->problem->buffers[i].root == ASH_MEMORY_NONE && p->problem->buffers[i].size &&
           p->places[i].arena != ASH_MEMORY_NONE && p->spans[i].begin < p->spans[i].end;
}

/* --- SVG ------------------------------------------------------------------------------------------ */

enum { WIDTH = 1200, HEIGHT = 640, LEFT = 16, TOP = 36 };

static void add_escaped(ash_text *text, const char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'' || c < 0x20)
            ash_text_add(text, "&#%u;", c < 0x20 ? 0x20u : c);
        else
            ash_text_add_bytes(text, s, 1);
    }
}

static const char *colour(ash_memory_kind kind) {
    static const char *const colours[ASH_MEMORY_KIND_COUNT] = {
        [ASH_MEMORY_INTERMEDIATE] = "#6ea8d8", [ASH_MEMORY_PARAMETER] = "#b9a26a",
        [ASH_MEMORY_INPUT] = "#7dbb7d",        [ASH_MEMORY_CONSTANT] = "#a9a9a9",
        [ASH_MEMORY_OUTPUT] = "#d98c6a",       [ASH_MEMORY_STATE] = "#9b7fc4"};
    return colours[kind];
}

typedef struct frame {
    double x, y; /* pixels per half step and per byte */
    int64_t first;
    uint64_t height; /* bytes */
} frame;

/* Half steps from one time to a later one: more than 63 bits of them are possible. */
static double between(int64_t begin, int64_t end) {
    return (double)((uint64_t)end - (uint64_t)begin);
}

static double at_time(const frame *f, int64_t time) {
    return LEFT + between(f->first, time) * f->x;
}

static double at_byte(const frame *f, uint64_t byte) {
    return TOP + HEIGHT - (double)byte * f->y;
}

/* The curve of live bytes: a point at every birth and death. */
static ash_status add_curve(ash_text *text, const picture *p, uint32_t arena, const frame *f,
                            ash_diag *diag) {
    const ash_allocator *a = text->allocator;
    size_t room = 2 * (size_t)p->problem->buffer_count, count = 0;
    ash_memory__key *keys = ash_mem_alloc(a, 2 * room, sizeof *keys);
    if (!keys) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < p->problem->buffer_count; i++) {
        if (!is_drawn(p, i) || p->places[i].arena != arena) continue;
        keys[count++] = (ash_memory__key){ash_memory__key_i64(p->spans[i].end), i};
        keys[count++] = (ash_memory__key){ash_memory__key_i64(p->spans[i].begin), i};
    }
    ash_memory__sort(keys, keys + room, count);
    uint64_t live = 0;
    ash_text_add(text, "<path fill=\"none\" stroke=\"#1d3557\" stroke-width=\"1.5\" d=\"M%d %.1f", LEFT,
                 at_byte(f, 0));
    for (size_t k = 0; k < count; k++) {
        int64_t time = (int64_t)(keys[k].key ^ UINT64_C(1) << 63);
        uint64_t size = p->problem->buffers[keys[k].value].size;
        live = p->spans[keys[k].value].end == time ? live - size : live + size;
        if (k + 1 == count || keys[k + 1].key != keys[k].key)
            ash_text_add(text, "H%.1fV%.1f", at_time(f, time), at_byte(f, live));
    }
    ash_text_add(text, "\"/>\n");
    ash_mem_free(a, keys, 2 * room, sizeof *keys);
    return ASH_OK;
}

ash_status ash_memory__add_svg(ash_text *text, const ash_memory_problem *problem,
                               const ash_memory_plan *plan, ash_diag *diag) {
    picture p;
    ASH_TRY(picture_init(&p, text->allocator, problem, plan, diag));
    uint32_t arena = 0;
    for (uint32_t i = 1; i < p.arena_count; i++)
        if (p.arenas[i].size > p.arenas[arena].size) arena = i;
    static const ash_memory_arena none;
    const ash_memory_arena *a = p.arena_count ? &p.arenas[arena] : &none;
    frame f = {.first = p.first, .height = ASH_MAX(a->size, 1)};
    f.x = (double)(WIDTH - 2 * LEFT) / between(p.first, p.last);
    f.y = (double)HEIGHT / (double)f.height;
    ash_text_add(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
        "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        WIDTH, HEIGHT + 2 * TOP);
    ash_text_add(text,
                 "<text x=\"%d\" y=\"22\">arena %u, lane %u: %llu bytes, bound %llu, %s; half steps %lld "
                 "to %lld</text>\n",
                 LEFT, arena, a->lane, (unsigned long long)a->size, (unsigned long long)a->lower_bound,
                 ash_memory__certificate_text(a->certificate), (long long)p.first, (long long)p.last);
    ash_text_add(text, "<g stroke=\"#fff\" stroke-width=\"0.4\">\n");
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        const ash_memory_buffer *b = &problem->buffers[i];
        if (!is_drawn(&p, i) || p.places[i].arena != arena) continue;
        double left = at_time(&f, p.spans[i].begin), top = at_byte(&f, p.places[i].offset + b->size);
        ash_text_add(text, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>",
                     left, top, at_time(&f, p.spans[i].end) - left, (double)b->size * f.y, colour(b->kind));
        if (b->name)
            add_escaped(text, b->name);
        else
            ash_text_add(text, "buffer %u", i);
        ash_text_add(text, ": %llu bytes at %llu, half steps %lld to %lld</title></rect>\n",
                     (unsigned long long)b->size, (unsigned long long)p.places[i].offset,
                     (long long)p.spans[i].begin, (long long)p.spans[i].end);
    }
    ash_text_add(text, "</g>\n");
    ash_status status = add_curve(text, &p, arena, &f, diag);
    ash_text_add(text, "<path stroke=\"#c1121f\" stroke-dasharray=\"6 4\" d=\"M%d %.1fH%d\"/>\n</svg>\n",
                 LEFT, at_byte(&f, a->lower_bound), WIDTH - LEFT);
    ash_mem_free(text->allocator, p.spans, problem->buffer_count, sizeof *p.spans);
    return status;
}

/* --- HTML ----------------------------------------------------------------------------------------- */

/* As a string of JavaScript that is also safe inside a script element. */
static void add_script_string(ash_text *text, const char *s) {
    ash_text_add(text, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == 0x7f)
            ash_text_add(text, "\\u%04x", c);
        else
            ash_text_add_bytes(text, s, 1);
    }
    ash_text_add(text, "\"");
}

static const char page_head[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>memory plan</title>\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>body{font:14px system-ui,sans-serif;margin:16px;color:#222;background:#fff}"
    "h1{font-size:18px;margin:0 0 4px}h2{font-size:14px;font-weight:600;margin:16px 0 4px}p{margin:0 0 "
    "8px;color:#555}"
    "canvas{width:100%;height:460px;border:1px solid #ccc;display:block;cursor:crosshair;touch-action:none}"
    "canvas:only-of-type{height:max(460px,calc(100vh - 140px))}"
    "#tip{position:fixed;background:#222;color:#fff;padding:4px 8px;border-radius:4px;font-size:12px;"
    "pointer-events:none;display:none;white-space:pre}"
    ".k{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}</style>\n<h1>Memory plan</h1>\n";

static const char page_script[] =
    "const tip=document.getElementById('tip'),fmt=n=>n.toLocaleString('en');\n"
    "const bytes=n=>{for(const[u,k]of[['GB',1e9],['MB',1e6],['kB',1e3]])if(n>=k)return "
    "+(n/k).toPrecision(3)+' '+u;return n+' B';};\n"
    "const step=(s,n)=>{const p=10**Math.floor(Math.log10(s/n));return "
    "Math.max(1,[1,2,5,10].map(k=>k*p).find(k=>s/k<=n));};\n"
    "for(const A of arenas){\n"
    " const h=document.createElement('h2');h.textContent=`arena ${A.index}, lane ${A.lane}: ${fmt(A.size)} "
    "bytes (${bytes(A.size)}), bound "
    "${fmt(A.bound)}, unshared ${fmt(A.unshared)}; ${A.certificate}`;document.body.append(h);\n"
    " const c=document.createElement('canvas');document.body.append(c);const g=c.getContext('2d');\n"
    " const R=A.rects,ev=new Map();R.forEach((r,i)=>r[6]=[1,.8,.62][i%3]);for(const r of "
    "R){ev.set(r[1],(ev.get(r[1])||0)+r[3]);"
    "ev.set(r[2],(ev.get(r[2])||0)-r[3]);}\n"
    " let live=0;const curve=[...ev.keys()].sort((a,b)=>a-b).map(t=>[t,live+=ev.get(t)]);\n"
    " const whole={t0:first,t1:last,y0:0,y1:Math.max(A.size,1)*1.04};let "
    "v={...whole},W,H,marked=null,drag=null;\n"
    " const X=t=>(t-v.t0)/(v.t1-v.t0)*W,Y=b=>H-(b-v.y0)/(v.y1-v.y0)*H;\n"
    " const T=x=>v.t0+x/W*(v.t1-v.t0),B=y=>v.y0+(H-y)/H*(v.y1-v.y0);\n"
    " function draw(){const "
    "d=devicePixelRatio||1;W=c.clientWidth;H=c.clientHeight;c.width=W*d;c.height=H*d;"
    "g.setTransform(d,0,0,d,0,0);g.clearRect(0,0,W,H);\n"
    "  for(const r of R){if(r[2]<v.t0||r[1]>v.t1||r[4]+r[3]<v.y0||r[4]>v.y1)continue;const "
    "x=X(r[1]),y=Y(r[4]+r[3]),"
    "w=X(r[2])-x,k=Y(r[4])-y;g.fillStyle=r===marked?'#ffd166':"
    "colours[r[5]];g.globalAlpha=r===marked?1:r[6];g.fillRect(x,y,Math.max(w,.5),"
    "Math.max(k,.5));g.globalAlpha=1;if(w>4&&k>4){g.strokeStyle='#fff';g.lineWidth=.5;g.strokeRect(x,y,w,k)"
    ";}\n"
    "   if(w>60&&k>14){g.fillStyle='#111';g.font='11px "
    "sans-serif';g.save();g.beginPath();g.rect(x,y,w,k);g.clip();"
    "g.fillText(r[0],Math.max(x,0)+4,y+k/2+4);g.restore();}}\n"
    "  g.strokeStyle='#1d3557';g.lineWidth=1.5;g.beginPath();let py=Y(0);g.moveTo(X(first),py);"
    "for(const[t,b]of curve){const x=X(t);g.lineTo(x,py);py=Y(b);g.lineTo(x,py);}g.stroke();\n"
    "  "
    "g.strokeStyle='#c1121f';g.setLineDash([6,4]);g.beginPath();g.moveTo(0,Y(A.bound));g.lineTo(W,Y(A."
    "bound));"
    "g.stroke();g.setLineDash([]);g.font='11px sans-serif';g.lineJoin='round';\n"
    "  const label=(s,x,y)=>{g.strokeStyle='#fff';g.lineWidth=3;g.strokeText(s,x,y);g.fillStyle='#444';"
    "g.fillText(s,x,y);},line=(x,y,u,w)=>{g.strokeStyle='#0002';g.lineWidth=1;g.beginPath();g.moveTo(x,y);"
    "g.lineTo(u,w);g.stroke();};\n"
    "  const dy=step(v.y1-v.y0,8),dt=step(v.t1-v.t0,12);\n"
    "  for(let b=Math.max(1,Math.ceil(v.y0/dy))*dy;b<v.y1;b+=dy){line(0,Y(b),W,Y(b));"
    "g.textAlign='right';label(bytes(b),W-4,Y(b)-3);g.textAlign='left';}\n"
    "  for(let t=Math.ceil(v.t0/dt)*dt;t<v.t1;t+=dt){line(X(t),H-5,X(t),H);label(fmt(t),X(t)+3,H-4);}}\n"
    " c.onmousemove=e=>{const b=c.getBoundingClientRect(),x=e.clientX-b.left,y=e.clientY-b.top;\n"
    "  if(drag){const "
    "dt=(drag.x-x)/W*(v.t1-v.t0),db=(y-drag.y)/H*(v.y1-v.y0);v.t0+=dt;v.t1+=dt;v.y0+=db;v.y1+=db;"
    "drag={x,y};draw();return;}\n"
    "  const t=T(x),o=B(y),m=R.find(r=>r[1]<=t&&t<r[2]&&r[4]<=o&&o<r[4]+r[3])||null;"
    "if(m!==marked){marked=m;draw();}\n"
    "  tip.style.display=m?'block':'none';if(m){tip.textContent=`${m[0]}\\n${fmt(m[3])} bytes at "
    "${fmt(m[4])}\\nhalf steps "
    "${m[1]} to ${m[2]}, ${kinds[m[5]]}`;tip.style.left=Math.min(e.clientX+12,innerWidth-260)+'px';"
    "tip.style.top=e.clientY+12+'px';}};\n"
    " c.onmouseleave=()=>{tip.style.display='none';if(marked){marked=null;draw();}};\n"
    " c.onmousedown=e=>{const b=c.getBoundingClientRect();drag={x:e.clientX-b.left,y:e.clientY-b.top};};\n"
    " addEventListener('mouseup',()=>drag=null);\n"
    " c.onwheel=e=>{e.preventDefault();const "
    "b=c.getBoundingClientRect(),t=T(e.clientX-b.left),o=B(e.clientY-b.top),"
    "s=Math.exp(e.deltaY*.002);if(!e.shiftKey){v.t0=t+(v.t0-t)*s;v.t1=t+(v.t1-t)*s;}if(!e.ctrlKey){v.y0=o+("
    "v.y0-o)*s;"
    "v.y1=o+(v.y1-o)*s;}draw();};\n"
    " c.ondblclick=()=>{v={...whole};draw();};\n"
    " new ResizeObserver(draw).observe(c);draw();}\n";

static void add_arena(ash_text *text, const picture *p, uint32_t arena) {
    const ash_memory_arena *a = &p->arenas[arena];
    ash_text_add(
        text,
        "arenas.push({index:%u,lane:%u,size:%llu,bound:%llu,unshared:%llu,certificate:\"%s\",rects:[\n",
        arena, a->lane, (unsigned long long)a->size, (unsigned long long)a->lower_bound,
        (unsigned long long)a->unshared, ash_memory__certificate_text(a->certificate));
    for (uint32_t i = 0; i < p->problem->buffer_count; i++) {
        const ash_memory_buffer *b = &p->problem->buffers[i];
        if (!is_drawn(p, i) || p->places[i].arena != arena) continue;
        ash_text_add(text, "[");
        if (b->name)
            add_script_string(text, b->name);
        else
            ash_text_add(text, "\"buffer %u\"", i);
        ash_text_add(text, ",%lld,%lld,%llu,%llu,%d],\n", (long long)p->spans[i].begin,
                     (long long)p->spans[i].end, (unsigned long long)b->size,
                     (unsigned long long)p->places[i].offset, (int)b->kind);
    }
    ash_text_add(text, "]});\n");
}

ash_status ash_memory__add_html(ash_text *text, const ash_memory_problem *problem,
                                const ash_memory_plan *plan, ash_diag *diag) {
    enum { SHOWN = 64 }; /* arenas: in the modes disabled and remap there are many */
    picture p;
    ASH_TRY(picture_init(&p, text->allocator, problem, plan, diag));
    ash_memory_summary s = ash_memory_plan_summary(plan);
    ash_text_add_bytes(text, page_head, sizeof page_head - 1);
    ash_text_add(text, "<p>%zu buffers, %zu arenas, %llu bytes; bound %llu, unshared %llu: %s.", s.placed,
                 s.arenas, (unsigned long long)s.size, (unsigned long long)s.lower_bound,
                 (unsigned long long)s.unshared, ash_memory__certificate_text(s.certificate));
    for (int k = 0; k < ASH_MEMORY_KIND_COUNT; k++)
        ash_text_add(text, "<span class=\"k\" style=\"background:%s\"></span>%s",
                     colour((ash_memory_kind)k), ash_memory_kind_text((ash_memory_kind)k));
    ash_text_add(text, "</p><p>Blue line: live bytes. Red: the bound. Wheel: zoom (shift: offsets only, "
                       "ctrl: time only); drag: "
                       "move; double click: all.</p>\n<div id=\"tip\"></div>\n<script>\n");
    ash_text_add(text, "const first=%lld,last=%lld,arenas=[],kinds=[", (long long)p.first,
                 (long long)p.last);
    for (int k = 0; k < ASH_MEMORY_KIND_COUNT; k++)
        ash_text_add(text, "\"%s\",", ash_memory_kind_text((ash_memory_kind)k));
    ash_text_add(text, "],colours=[");
    for (int k = 0; k < ASH_MEMORY_KIND_COUNT; k++)
        ash_text_add(text, "\"%s\",", colour((ash_memory_kind)k));
    ash_text_add(text, "];\n");
    for (uint32_t i = 0; i < p.arena_count && i < SHOWN; i++) add_arena(text, &p, i);
    ash_text_add_bytes(text, page_script, sizeof page_script - 1);
    ash_text_add(text, "</script></html>\n");
    ash_mem_free(text->allocator, p.spans, problem->buffer_count, sizeof *p.spans);
    return ASH_OK;
}
