package shop.edge;

import io.netty.channel.Channel;
import java.io.IOException;
import java.util.function.LongConsumer;

/** What a connection of the gateway knows of the stock: a server that echoes 64 bytes, when it gets round to it. */
interface Stock {
    String HOST = "127.0.0.1";
    int PORT = 9000;
    int BYTES = 64;

    /** Connects, for a client of the gateway that has connected. */
    void open(Channel client) throws IOException;

    /** Asks, and hands on the answer: before it returns, or later on the client's event loop. */
    void ask(LongConsumer answer) throws IOException;

    void close() throws IOException;
}
