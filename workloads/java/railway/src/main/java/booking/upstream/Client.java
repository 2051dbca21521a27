package booking.upstream;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import org.apache.hc.client5.http.DnsResolver;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.config.ConnectionConfig;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManager;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.core5.http.io.entity.EntityUtils;
import org.apache.hc.core5.pool.PoolReusePolicy;
import org.apache.hc.core5.util.TimeValue;

/** A client of one service that has several addresses: each new connection goes to the next of them, as with a name in the DNS. */
final class Client {
    private static final boolean KEEP_ALIVE = Boolean.getBoolean("booking.keepalive");
    private static final TimeValue FOR_LONG = TimeValue.ofMinutes(3);

    private final String url;
    private final CloseableHttpClient http;

    Client(String name, List<InetSocketAddress> addresses, int connections, long ageSeconds) {
        url = "http://" + name + ":" + addresses.get(0).getPort() + "/";
        http = make(new InTurn(addresses), connections, ageSeconds);
    }

    /** The length of the answer. */
    long ask() throws IOException {
        return http.execute(new HttpGet(url), answer -> (long) EntityUtils.toByteArray(answer.getEntity()).length);
    }

    private static CloseableHttpClient make(InTurn addresses, int connections, long ageSeconds) {
        ConnectionConfig.Builder config = ConnectionConfig.custom();
        if (ageSeconds > 0) {
            config.setTimeToLive(TimeValue.ofSeconds(ageSeconds));
        }
        PoolingHttpClientConnectionManager pool = PoolingHttpClientConnectionManagerBuilder.create()
            .setDnsResolver(addresses)
            .setMaxConnTotal(connections)
            .setMaxConnPerRoute(connections)
            .setConnPoolPolicy(PoolReusePolicy.FIFO)
            .setDefaultConnectionConfig(config.build())
            .build();
        return HttpClients.custom()
            .setConnectionManager(pool)
            .setKeepAliveStrategy((answer, context) -> KEEP_ALIVE ? FOR_LONG : null) // null: it is closed after the answer
            .disableAutomaticRetries()
            .disableCookieManagement()
            .build();
    }

    static InetSocketAddress address(String text) {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
    }

    /** Gives the addresses, beginning with another one each time. One that refuses is passed over by the client. */
    private static final class InTurn implements DnsResolver {
        private final InetAddress[] all;
        private int next;

        InTurn(List<InetSocketAddress> addresses) {
            all = addresses.stream().map(InetSocketAddress::getAddress).toArray(InetAddress[]::new);
        }

        @Override
        public synchronized InetAddress[] resolve(String host) {
            InetAddress[] turned = new InetAddress[all.length];
            for (int i = 0; i < all.length; i++) {
                turned[i] = all[(next + i) % all.length];
            }
            next = (next + 1) % all.length;
            return turned;
        }

        @Override
        public String resolveCanonicalHostname(String host) {
            return host;
        }
    }
}
