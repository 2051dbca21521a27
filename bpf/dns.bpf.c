//go:build ignore

// The target's questions to name servers over UDP, and their answers, whoever waits for them: a thread, an event loop,
// or nobody. A question is recognized by its header, whatever port its server listens on (RFC 1035, 4.1.1).
#include "target.h"

LICENSE("Dual BSD/GPL");

enum { UDP = 17 };
enum { ETH_IP = 0x0800, ETH_IPV6 = 0x86dd };

// These protocols ask all neighbours at once, and most neighbours have no answer (RFC 6762, RFC 4795).
enum { MDNS = 5353, LLMNR = 5355 };

// The target's network namespace.
const volatile u32 only_netns = 0;

// An open question. A resolver that asks again uses the same number, most often from the same port.
struct query {
	u16 port; // the target's
	u16 id;
};

struct server {
	u32 addr[4]; // IPv4 addresses are mapped
	u32 port;
};

struct open {
	u64 since; // ktime_ns
	struct server server;
	u32 kind;
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, struct query);
	TYPE(value, struct open);
} questions SEC(".maps");

#define RCODES 16

// What a question asks for. An address lookup asks for both kinds, and is content with either.
enum { OTHER, IPV4, IPV6, KINDS };

struct asked {
	u64 queries;
	u64 ns;                     // until the answers
	u32 answers[KINDS][RCODES]; // by the code of the answer
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 256);
	TYPE(key, struct server);
	TYPE(value, struct asked);
} servers SEC(".maps");

// Whether the target has asked anything: until then, packets that come to the host are not looked at.
bool asks = 0;

enum { LOST_QUERIES, LOST_SERVERS, LOST_KINDS };

LOST(LOST_KINDS)

// The headers of a datagram, in network order.
struct message {
	u32 from[4], to[4];
	u16 sport, dport, len, check; // of UDP
	u16 id, flags, questions, answers, authorities, additional;
};

enum { UDP_HEADER = 8, DNS_HEADER = 12 };

// read_message returns where the question begins, and 0 if it is not a UDP datagram.
static inline const unsigned char *read_message(struct message *m, const unsigned char *ip, u16 protocol)
{
	u32 udp = 40;
	u8 byte = 0;

	if (protocol == be16(ETH_IP)) {
		if (read_kernel(&byte, 1, ip + 9) || byte != UDP)
			return 0;
		read_kernel(&byte, 1, ip);
		udp = (byte & 15) * 4;
		m->from[2] = m->to[2] = 0xffff0000; // ::ffff in network order, as a little-endian word
		read_kernel(&m->from[3], 4, ip + 12);
		read_kernel(&m->to[3], 4, ip + 16);
	} else if (protocol == be16(ETH_IPV6)) {
		if (read_kernel(&byte, 1, ip + 6) || byte != UDP)
			return 0;
		read_kernel(m->from, 16, ip + 8);
		read_kernel(m->to, 16, ip + 24);
	} else {
		return 0;
	}
	if (read_kernel(&m->sport, UDP_HEADER + DNS_HEADER, ip + udp))
		return 0;
	return ip + udp + UDP_HEADER + DNS_HEADER;
}

// The other flags say whether the question may be passed on, and the like.
enum { RESPONSE = 0x8000, OPCODE = 0x7800, RCODE = 0x000f };

// A standard question for one name; what follows it may be an option (EDNS, RFC 6891) and a signature.
static inline bool is_question(const struct message *m)
{
	return !(be16(m->flags) & (RESPONSE | OPCODE)) && m->questions == be16(1) && !m->answers && !m->authorities &&
	       be16(m->additional) <= 2;
}

enum { TYPE_A = 1, TYPE_AAAA = 28 };

// A name has at most 255 bytes, a label at least two (RFC 1035, 2.3.4); beyond this many the kind is OTHER.
enum { LABELS = 32 };

// kind_of reads the type of the question, which follows its name; the names of questions are never compressed.
static inline u32 kind_of(const unsigned char *name)
{
	u8 length = 0;
	u16 type = 0;

	for (u32 i = 0; i < LABELS; i++) {
		if (read_kernel(&length, 1, name))
			return OTHER;
		name += 1 + (u32)length;
		if (!length)
			break;
	}
	if (length || read_kernel(&type, 2, name))
		return OTHER;
	if (type == be16(TYPE_A))
		return IPV4;
	return type == be16(TYPE_AAAA) ? IPV6 : OTHER;
}

static inline struct asked *asked_of(const struct server *server)
{
	struct asked none = {}, *a = map_lookup(&servers, server);

	if (a)
		return a;
	map_update(&servers, server, &none, BPF_NOEXIST);
	a = map_lookup(&servers, server);
	if (!a)
		lose(LOST_SERVERS, 1);
	return a;
}

// It runs in the thread that sends (__dev_queue_xmit in net/core/dev.c).
SEC("tp_btf/net_dev_queue")
int ask(u64 *ctx)
{
	const struct sk_buff *skb = (void *)ctx[0];
	const struct sock *sk = skb->sk; // without read: it is called for each packet of a busy host
	struct message m = {};
	struct open open = {};
	struct query query;
	const unsigned char *name;
	struct asked *a;
	u16 port;

	if (!sk || sk->sk_protocol != UDP || !is_target(pid_tgid() >> 32))
		return 0;
	name = read_message(&m, read(skb->head) + read(skb->network_header), read(skb->protocol));
	if (!name || !is_question(&m))
		return 0;
	port = be16(m.dport);
	if (port == MDNS || port == LLMNR)
		return 0;
	open.since = ktime_ns();
	open.server.port = port;
	open.kind = kind_of(name);
	for (u32 i = 0; i < 4; i++)
		open.server.addr[i] = m.to[i];
	query.port = read(sk->__sk_common.skc_num);
	query.id = m.id;
	if (map_lookup(&questions, &query))
		return 0; // asked again
	a = asked_of(&open.server);
	if (!a)
		return 0;
	if (map_update(&questions, &query, &open, BPF_NOEXIST)) {
		lose(LOST_QUERIES, 1);
		return 0;
	}
	add(a->queries, 1);
	if (!asks)
		asks = 1;
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int answer(u64 *ctx)
{
	const struct sk_buff *skb = (void *)ctx[0];
	struct message m = {};
	struct query query;
	struct asked *a;
	struct open *q;
	struct net *net;
	u64 since;
	u32 kind;

	if (!asks)
		return 0;
	if (!read_message(&m, read(skb->data), read(skb->protocol)) || !(be16(m.flags) & RESPONSE))
		return 0;
	query.port = be16(m.dport);
	query.id = m.id;
	q = map_lookup(&questions, &query);
	if (!q)
		return 0;
	net = read(read(skb->dev)->nd_net.net);
	if (read(net->ns.inum) != only_netns)
		return 0;
	since = q->since;
	kind = q->kind;
	a = map_lookup(&servers, &q->server);
	if (!a || map_delete(&questions, &query))
		return 0;
	add(a->ns, ktime_ns() - since);
	if (kind < KINDS)
		add(a->answers[kind][be16(m.flags) & RCODE], 1);
	return 0;
}
